//go:build unix

package outbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// A relay in a process of its own is told by these what to do.
const (
	relayStore  = "MILLPOND_TEST_RELAY_STORE"
	relayFile   = "MILLPOND_TEST_RELAY_FILE"
	relayBroken = "MILLPOND_TEST_RELAY_BROKEN"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(writerStore); address != "" {
		if err := writerProcess(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if address := os.Getenv(relayStore); address != "" {
		if err := relayProcess(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// relayProcess is a relay that publishes to a file, until its input or the process ends. At
// each of its points it may kill itself.
func relayProcess(address string) error {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	store, err := stores.Open(context.Background(), address)
	if err != nil {
		return err
	}
	f, err := openFile(os.Getenv(relayFile))
	if err != nil {
		return err
	}
	f.dies = true
	target := stores.Outbox(dying{store.(stores.Outbox), f})
	if wrap := brokenRelays[os.Getenv(relayBroken)]; wrap != nil {
		target = wrap(target)
	}
	relay, err := outbox.New(target, killedConfig(f))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends, or says so
		stop()
	}()
	return errors.Join(relay.Run(ctx), store.Close())
}

func killedConfig(f *file) outbox.Config {
	c := quick(one(f))
	c.LeaseTTL, c.PublishTimeout, c.MaxAttempts, c.Backoff = 1200*time.Millisecond, time.Second, 10_000, 5*time.Millisecond
	return c
}

// brokenRelays break one rule each.
var brokenRelays = map[string]func(stores.Outbox) stores.Outbox{
	"delete before confirm":  func(s stores.Outbox) stores.Outbox { return deletesFirst{s} },
	"two of a key in a wave": func(s stores.Outbox) stores.Outbox { return keyless{s} },
	"id > last":              func(s stores.Outbox) stores.Outbox { return &risesOnly{Outbox: s} },
}

// besideTheOwner lets who has committed a message publish it, too.
const besideTheOwner = "publishing beside the owner"

// publishBeside publishes what was committed last, if it was not undone.
func (s *story) publishBeside(f *file, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, ids := range s.committed {
		if slices.Contains(ids, id) {
			_ = f.PublishEach(context.Background(), "", newMessage(id, key))
		}
	}
}

// dying is a store whose process may die before and after it is told what was published.
type dying struct {
	stores.Outbox
	file *file
}

func (d dying) Settle(ctx context.Context, s stores.Settlement) error {
	d.file.point("before settle", len(s.Published))
	err := d.Outbox.Settle(ctx, s)
	d.file.point("after settle", len(s.Published))
	return err
}

// file is a broker whose messages are lines: id, tab, order key.
type file struct {
	*os.File
	dies bool
}

func openFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return &file{File: f}, err
}

// point is where the process may die, once in a few hundred messages.
func (f *file) point(name string, messages int) {
	if f.dies && messages > 0 && rand.N(150) < messages {
		fmt.Fprintf(f, "! %s\n", name)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
}

// awaySuffix makes the name of a file during whose life the broker is away.
const awaySuffix = ".away"

func (f *file) PublishEach(_ context.Context, _ string, messages ...*message.Message) []error {
	errs := make([]error, len(messages))
	_, err := os.Stat(f.Name() + awaySuffix)
	away := f.dies && err == nil
	for i, msg := range messages {
		if away {
			errs[i] = brokers.ErrUnavailable
			continue
		}
		if f.dies && rand.N(40) == 0 {
			errs[i] = errors.New("not like this")
			continue
		}
		f.point("before publish", 1)
		if _, err := fmt.Fprintf(f, "%s\t%s\n", msg.UUID, msg.Metadata.Get("key")); err != nil {
			errs[i] = err
		}
		f.point("after publish", 1)
		if f.dies && rand.N(200) == 0 { // the answer is lost
			errs[i] = brokers.ErrUnavailable
		}
	}
	return errs
}

func (f *file) Publish(string, ...*message.Message) error { return errors.New("not by this") }

// readFile returns what was published, and how often processes died at each point.
func readFile(tb testing.TB, path string) (*broker, map[string]int) {
	tb.Helper()
	content, err := os.ReadFile(path)
	check(tb, err)
	b, died := &broker{}, make(map[string]int)
	for lines := bufio.NewScanner(bytes.NewReader(content)); lines.Scan(); {
		if point, ok := strings.CutPrefix(lines.Text(), "! "); ok {
			died[point]++
			continue
		}
		id, key, _ := strings.Cut(lines.Text(), "\t")
		b.taken = append(b.taken, newMessage(id, key))
	}
	return b, died
}

// fleet runs relays in processes, and hurts them.
type fleet struct {
	tb     testing.TB
	env    []string
	lapse  time.Duration // as in rig
	mu     sync.Mutex
	deaths int
}

// relay runs so many processes one after another, but none after ctx has ended. Each dies by
// itself, is killed, stands still beyond its lease, or leaves in order.
func (f *fleet) relay(ctx context.Context, times int) {
	for range times {
		if ctx.Err() != nil {
			return
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), f.env...)
		cmd.Stderr = os.Stderr
		input, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			f.tb.Error(err)
			return
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // it is killed, more often than not
		}()
		f.hurt(ctx, cmd.Process, input, ended)
		if state := cmd.ProcessState.Sys().(syscall.WaitStatus); state.Signaled() {
			f.mu.Lock()
			f.deaths++
			f.mu.Unlock()
		}
	}
}

func (f *fleet) hurt(ctx context.Context, p *os.Process, input io.Closer, ended <-chan struct{}) {
	sleep := func(d time.Duration) (over bool) {
		select {
		case <-ended:
			return true
		case <-time.After(d):
		case <-ctx.Done():
		}
		return false
	}
	over := sleep(f.lapse + time.Duration(300+rand.N(1200))*time.Millisecond)
	if !over && ctx.Err() == nil && rand.N(2) == 0 { // beyond its lease, or not
		_ = p.Signal(syscall.SIGSTOP)
		over = sleep(time.Duration(200+rand.N(2000)) * time.Millisecond)
		_ = p.Signal(syscall.SIGCONT)
		over = over || sleep(time.Duration(rand.N(300))*time.Millisecond)
	}
	if over {
		return
	}
	if rand.N(4) == 0 {
		_ = input.Close()
	} else {
		_ = p.Kill()
	}
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		_ = p.Kill()
		<-ended
	}
}

func (f *fleet) died() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.deaths
}

// hurtRelays has four writers write while three relays in processes are hurt, until so many
// have died. It returns what is wrong in the end.
func hurtRelays(r *rig, deaths int, broken string) (wrong []string, died map[string]int) {
	r.tb.Helper()
	path := filepath.Join(r.tb.TempDir(), "published")
	f := &fleet{tb: r.tb, env: []string{relayStore + "=" + r.address, relayFile + "=" + path, relayBroken + "=" + broken}, lapse: r.lapse}
	s := &story{committed: make(map[string][]string), undone: make(map[string]bool)}
	ctx, stop := context.WithCancel(r.tb.Context())
	own, err := openFile(path)
	check(r.tb, err)
	defer own.Close()
	var relays, writers sync.WaitGroup
	for range 3 {
		relays.Go(func() { f.relay(ctx, math.MaxInt) })
	}
	for worker := range 4 {
		writers.Go(func() {
			for n := 0; f.died() < deaths; n++ {
				if err := s.write(r, worker, n); err != nil {
					r.tb.Errorf("worker %d: %v", worker, err)
					return
				}
				if broken == besideTheOwner {
					s.publishBeside(own, fmt.Sprintf("%d-%d", worker, n))
				}
				<-time.After(time.Duration(rand.N(30)) * time.Millisecond)
			}
		})
	}
	writers.Wait()
	stop()
	relays.Wait()
	// Those that delete before they publish may all die in between.
	if b, _ := readFile(r.tb, path); broken == "" && len(b.taken) == 0 {
		r.tb.Error("the relays in processes have published nothing")
	}

	_, end := start(r.tb, r.outbox, killedConfig(own))
	for deadline := time.Now().Add(30 * time.Second); r.waiting() > 0 && time.Now().Before(deadline); {
		<-time.After(50 * time.Millisecond)
	}
	end()
	if n := r.waiting(); n > 0 {
		wrong = append(wrong, fmt.Sprintf("%d messages are not published", n))
	}
	b, died := readFile(r.tb, path)
	r.tb.Logf("%d relays died, by themselves %v; %d messages were published, %d times", f.died(), died, len(b.first()), len(b.taken))
	return append(wrong, s.check(b)...), died
}

// Relays die between commit and publish, publish and delete, and under lease; they stand
// still beyond their leases, come and go. In the end every committed message is published, none
// of a transaction that was rolled back, and each order key in the order of its commits. With
// MILLPOND_SOAK=n this goes on until n relays have died on each store.
func TestKilledRelays(t *testing.T) {
	t.Parallel()
	deaths := 15
	if n, err := strconv.Atoi(os.Getenv(rotation.SoakVariable)); err == nil {
		deaths = max(n, deaths)
	}
	for _, name := range rotation.Turn(t, 1, "mariadb", "postgres", "sqlite", "dynamodb") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			open := systems[name]
			if name == "dynamodb" {
				open = onDynamoDB
			}
			wrong, _ := hurtRelays(open(t), deaths, "")
			for _, one := range wrong {
				t.Errorf("%.600s", one)
			}
		})
	}
}

// Each of these relays breaks a rule, and is noticed.
func TestKilledRelaysThatAreBroken(t *testing.T) {
	t.Parallel()
	const onDynamo = " on DynamoDB"
	for _, name := range rotation.Turn(t, 1, "delete before confirm", "id > last", besideTheOwner, "two of a key in a wave", publishBeforeCommit, "delete before confirm"+onDynamo) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				var wrong []string
				rule, dynamo := strings.CutSuffix(name, onDynamo)
				switch {
				case name == publishBeforeCommit:
					wrong = newChaos(t, "postgres", name).run(3)
				case dynamo:
					wrong, _ = hurtRelays(onDynamoDB(t), 10, rule)
				default:
					wrong, _ = hurtRelays(onPostgres(t), 10, rule)
				}
				if len(wrong) > 0 {
					t.Logf("%.200s", wrong[0])
					return
				}
			}
			t.Error("nothing is wrong")
		})
	}
}
