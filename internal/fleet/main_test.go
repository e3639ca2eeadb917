package fleet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
)

// What the workers of these tests do is told by the environment.
const (
	modeEnv = "FLEET_TEST_MODE" // an entry of modes
	logEnv  = "FLEET_TEST_LOG"  // the file that gets a line for each delivery
)

func TestMain(m *testing.M) {
	mode := os.Getenv(modeEnv)
	switch {
	case IsWorker():
		os.Exit(modes[mode]())
	case mode != "":
		os.Exit(parentModes[mode]())
	}
	goleak.VerifyTestMain(m)
}

// modes are the worker programs.
var modes = map[string]func() int{
	"ack": func() int {
		return consume(func(_ *Worker, msg *message.Message) { msg.Ack() })
	},
	"slow": func() int {
		return consume(func(_ *Worker, msg *message.Message) {
			<-time.After(2 * time.Millisecond) // work
			msg.Ack()
		})
	},
	"point": func() int {
		return consume(func(w *Worker, msg *message.Message) {
			w.Announce("before ack")
			msg.Ack()
			w.Announce("after ack")
		})
	},
	"nack first": func() int {
		return consume(func(_ *Worker, msg *message.Message) {
			if d, _ := brokers.DeliveryOf(msg); d.Count == 1 {
				brokers.SetGiveBack(msg, brokers.GiveBack{After: 50 * time.Millisecond, Failed: true})
				msg.Nack()
				return
			}
			msg.Ack()
		})
	},
	"nack": func() int {
		return consume(func(_ *Worker, msg *message.Message) { msg.Nack() })
	},
	"exit first": func() int {
		return consume(func(_ *Worker, msg *message.Message) {
			if d, _ := brokers.DeliveryOf(msg); d.Count == 1 && string(msg.Payload) == "poison" {
				os.Exit(3)
			}
			msg.Ack()
		})
	},
	"sit first": func() int { // settles the first delivery of "slow" far too late
		return consume(func(_ *Worker, msg *message.Message) {
			if d, _ := brokers.DeliveryOf(msg); d.Count == 1 && string(msg.Payload) == "slow" {
				<-time.After(500 * time.Millisecond)
			}
			msg.Ack()
		})
	},
	"prints": func() int {
		return consume(func(_ *Worker, msg *message.Message) {
			fmt.Println("a handler prints to standard output")
			msg.Ack()
		})
	},
	"garbage": func() int {
		fmt.Println(strings.Repeat("this program knows nothing of frames, and says so at some length. ", 10))
		<-time.After(time.Minute)
		return 0
	},
	"broken": func() int { return 7 },
	"fails at the end": func() int {
		consume(func(_ *Worker, msg *message.Message) { msg.Ack() })
		return 66
	},
	"stays": func() int {
		consume(func(_ *Worker, msg *message.Message) { msg.Ack() })
		<-time.After(time.Minute)
		return 0
	},
}

// consume runs a worker until the parent needs it no more, or asks it to leave.
func consume(handle func(*Worker, *message.Message)) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	worker, err := ConnectStdio()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	log, err := os.OpenFile(os.Getenv(logEnv), os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	messages, err := worker.Subscribe(ctx, "numbers")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for msg := range messages {
		go func() {
			d, _ := brokers.DeliveryOf(msg)
			if _, err := fmt.Fprintf(log, "%s\t%d\t%t\t%d\n", msg.UUID, d.Count, d.Suspect, worker.Index); err != nil {
				panic(err)
			}
			handle(worker, msg)
		}()
	}
	if err := worker.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// line is one delivery as a worker has logged it.
type line struct {
	uuid          string
	count, worker int
	suspect       bool
}

// rig is a fleet of this test binary's workers and what they have logged.
type rig struct {
	Config

	log string
}

func newRig(t *testing.T, mode string, messages ...Message) *rig {
	t.Helper()
	r := &rig{log: filepath.Join(t.TempDir(), "deliveries")}
	r.Seed = 1
	r.Workers = 4
	r.StopTimeout = 30 * time.Second
	r.Command = command(mode, r.log)
	r.Source = source(messages)
	return r
}

func command(mode, log string) func(int) *exec.Cmd {
	self := Self()
	return func(worker int) *exec.Cmd {
		cmd := self(worker)
		cmd.Env = append(cmd.Environ(), modeEnv+"="+mode, logEnv+"="+log,
			"GORACE=atexit_sleep_ms=0") // by default each exit would take a second
		return cmd
	}
}

func source(messages []Message) func(func(Message, error) bool) {
	return func(yield func(Message, error) bool) {
		for _, m := range messages {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func numbers(n int) []Message {
	messages := make([]Message, n)
	for i := range messages {
		messages[i] = Message{Topic: "numbers", UUID: fmt.Sprintf("message-%d", i), Payload: []byte{byte(i)}}
	}
	return messages
}

// await holds the source back until all workers are there.
func (r *rig) await() {
	source, observe := r.Source, r.Observe
	waiting := make(map[int]bool)
	for worker := range r.Workers {
		waiting[worker] = true
	}
	all := make(chan struct{})
	r.Observe = func(e Event) {
		if e.Kind == EventReady && waiting[e.Worker] {
			if delete(waiting, e.Worker); len(waiting) == 0 {
				close(all)
			}
		}
		if observe != nil {
			observe(e)
		}
	}
	r.Source = func(yield func(Message, error) bool) {
		<-all
		source(yield)
	}
}

func (r *rig) run(t *testing.T) (Report, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	report, err := Run(ctx, r.Config)
	t.Logf("%+v", report)
	return report, err
}

func (r *rig) mustRun(t *testing.T) Report {
	t.Helper()
	report, err := r.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if report.Unsettled != 0 {
		t.Errorf("%d unsettled", report.Unsettled)
	}
	if want := report.Published + report.Duplicates - report.Dropped; report.Acks != want {
		t.Errorf("%d acks, want %d", report.Acks, want)
	}
	if want := report.Published + report.Duplicates + report.Redeliveries + report.Nacks - report.Dropped; report.Deliveries != want {
		t.Errorf("%d deliveries, want %d", report.Deliveries, want)
	}
	return report
}

// deliveries returns what the workers have logged, by message.
func (r *rig) deliveries(t *testing.T) map[string][]line {
	t.Helper()
	content, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	logged := make(map[string][]line)
	for text := range strings.Lines(string(content)) {
		var l line
		if _, err := fmt.Sscanf(text, "%s\t%d\t%t\t%d", &l.uuid, &l.count, &l.suspect, &l.worker); err != nil {
			t.Fatalf("%q: %s", text, err)
		}
		logged[l.uuid] = append(logged[l.uuid], l)
	}
	return logged
}
