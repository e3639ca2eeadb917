package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
)

// trial is one run: workers on a store and a broker, what is published, and what is done
// to them.
type trial struct {
	setup // URL, Broker and Dir are the trial's

	seed     uint64
	database *database
	server   server
	kills    []fleet.Kill
	outages  int           // of the broker
	messages int           // at least; more while faults are still to come
	limit    time.Duration // until everything must be at rest

	// outlasted: workers are stopped for so long that the broker may count to its limit without
	// anybody who could act. It reports those messages, and they are handled all the same.
	outlasted bool

	ledger *ledger
	logs   []*os.File   // what workers write to standard error
	struck atomic.Int64 // decisive faults
	latest atomic.Int64 // of them, in Unix nanoseconds
	broken atomic.Int64 // outages

	mu      sync.Mutex
	running map[int]bool // processes
}

const workers = 3

var errStuck = errors.New("not everything has come to rest in time")

// result is what became of a trial.
type result struct {
	fleet.Report
	*audit

	trial   *trial
	history []event
}

// run runs the trial and checks what must hold. What does not is in the result; what
// else goes wrong fails the test.
func (tr *trial) run(t *testing.T) *result {
	t.Helper()
	tr.ledger, tr.running = newLedger(tr.seed), make(map[int]bool)
	tr.server = kinds[tr.Kind].start(t, tr.setup)
	tr.Dir, tr.URL, tr.Broker = t.ArtifactDir(), tr.database.url, tr.server.address()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var beside sync.WaitGroup
	disturbed, published := make(chan struct{}), make(chan struct{})
	beside.Go(func() {
		defer close(disturbed)
		err := outages(ctx, tr.server, tr.seed, tr.outages, tr.faultTime(), func(what string) {
			tr.ledger.happened(what)
			tr.broken.Add(1)
		})
		if err != nil {
			t.Errorf("the broker could not be hurt as planned: %v", err)
		}
	})
	beside.Go(func() {
		defer close(published)
		if err := tr.publish(ctx); err != nil {
			t.Errorf("publish: %v", err)
		}
	})
	beside.Go(func() { tr.watchTime(ctx, cancel) })
	report, err := fleet.Run(ctx, fleet.Config{
		Source: func(yield func(fleet.Message, error) bool) {
			for i := 0; ; i++ {
				if !yield(fleet.Message{Topic: ticks, UUID: fmt.Sprint(i)}, nil) {
					return
				}
				select {
				case <-time.After(tickEvery):
				case <-ctx.Done():
					return
				}
				if over(disturbed) && over(published) {
					return
				}
			}
		},
		Command:  tr.command(t),
		Workers:  workers,
		Seed:     tr.seed,
		Kills:    tr.kills,
		MaxExits: 100,
		AtRest:   tr.atRest,
		Observe:  tr.observe,
	})
	cancel(nil)
	beside.Wait()
	if err != nil && !errors.Is(err, errStuck) {
		t.Errorf("fleet: %v", err)
	}
	history := append(readHistory(t, tr.Dir), tr.ledger.events...)
	r := &result{Report: report, audit: tr.check(t), trial: tr, history: history}
	r.facts(history)
	if r.stuck = errors.Is(err, errStuck); r.stuck {
		r.reportf("", "not at rest within %s, %d of %d faults have struck", tr.limit, tr.struck.Load(), decisive(tr.kills))
	}
	tr.checkLogs(t)
	return r
}

func (tr *trial) publish(ctx context.Context) error {
	to, err := tr.server.client(ctx)
	if err != nil {
		return err
	}
	defer to.Close()
	return tr.ledger.publish(ctx, to, tr.messages, tr.struckAll)
}

// struckAll reports whether all faults have struck, or what is left will not any more.
func (tr *trial) struckAll() bool {
	if tr.struck.Load() == decisive(tr.kills) {
		return true
	}
	quiet := time.Since(time.Unix(0, tr.latest.Load()))
	return tr.struck.Load() >= decisive(tr.kills)*8/10 && quiet > patience
}

func over(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// faultTime is about how long the faults take.
func (tr *trial) faultTime() time.Duration {
	last := 0
	for _, k := range tr.kills {
		if k.Kind != fleet.SIGTERM {
			last = max(last, k.After)
		}
	}
	return max(time.Duration(last)*tickEvery, 5*time.Second)
}

// command starts this binary again as a worker; see TestMain.
func (tr *trial) command(t *testing.T) func(int) *exec.Cmd {
	t.Helper()
	told, err := json.Marshal(tr.setup)
	if err != nil {
		t.Fatal(err)
	}
	for worker := range workers {
		file, err := os.OpenFile(filepath.Join(tr.Dir, fmt.Sprintf("stderr-%d", worker)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		tr.logs = append(tr.logs, file)
	}
	self := fleet.Self()
	return func(worker int) *exec.Cmd {
		cmd := self(worker)
		cmd.Stderr = tr.logs[worker]
		cmd.Env = append(cmd.Environ(), setupEnv+"="+string(told),
			"GORACE=atexit_sleep_ms=0", // by default each exit would take a second
			"GOTRACEBACK=all")
		return cmd
	}
}

func (tr *trial) observe(e fleet.Event) {
	switch e.Kind {
	case fleet.EventStarted, fleet.EventExited:
		tr.mu.Lock()
		tr.running[e.PID] = e.Kind == fleet.EventStarted
		tr.mu.Unlock()
		tr.ledger.happened(fmt.Sprintf("pid %d %s %v", e.PID, e.Kind, e.Err))
	case fleet.EventKilled:
		if e.Fault != fleet.SIGTERM {
			tr.struck.Add(1)
			tr.latest.Store(time.Now().UnixNano())
		}
		tr.ledger.happened(fmt.Sprintf("pid %d %s %s", e.PID, e.Fault, e.Point))
	default:
	}
}

// atRest reports whether the broker has nothing left and no message is kept for a retry.
func (tr *trial) atRest(ctx context.Context) bool {
	left, err := tr.server.left(ctx)
	if err != nil || left > 0 {
		return false
	}
	var pending, settled int
	err = tr.database.admin.QueryRowContext(ctx, "SELECT count(*) FROM millpond_failure WHERE status = 3 AND placement = 1").Scan(&pending)
	if err != nil || pending > 0 {
		return false
	}
	ids, _ := tr.ledger.count()
	err = tr.database.admin.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM millpond_inbox WHERE status IN (2, 4))
+ (SELECT count(DISTINCT payload) FROM millpond_quarantine)`).Scan(&settled)
	return err == nil && settled >= ids
}

// watchTime ends a run that is stuck, with the stacks of all workers in their logs.
func (tr *trial) watchTime(ctx context.Context, end context.CancelCauseFunc) {
	if !pause.Sleep(ctx, tr.limit) {
		return
	}
	tr.ledger.happened("the time is over: " + tr.server.describe(ctx))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for pid, runs := range tr.running {
		if runs {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
	end(errStuck)
}

// log returns what a worker has written to standard error.
func (tr *trial) log(worker int) string {
	content, err := os.ReadFile(tr.logs[worker].Name())
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// checkLogs fails the test for what no worker may say.
func (tr *trial) checkLogs(t *testing.T) {
	t.Helper()
	for worker := range tr.logs {
		log := tr.log(worker)
		for _, bad := range []string{"WARNING: DATA RACE", "\nfatal error: ", "\npanic: ", workerFailure} {
			if i := strings.Index("\n"+log, bad); i >= 0 {
				t.Errorf("worker %d:\n%s", worker, head(log[max(i-1, 0):], 8000))
				break
			}
		}
	}
}

func head(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
