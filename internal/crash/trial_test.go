package crash

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
	"syscall"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
)

// trial is one run: a fleet of workers on a system, what is published, and what is
// done to them.
type trial struct {
	fleet.Config // Source, Command and Observe are the trial's
	setup        // System, URL and Dir are the trial's

	system *system
	orders []order

	// disturb hurts the database while the fleet runs, until it has done enough or
	// ctx ends. It leaves the database well.
	disturb func(ctx context.Context, l *ledger) error
	loss    *loss // nil: the server loses nothing
	// limit is how long until everything must be settled: I10.
	limit time.Duration

	ledger *ledger
	logs   []*os.File // what workers write to standard error

	mu      sync.Mutex
	running map[int]bool // processes
	early   []violation  // found while running
}

// result is what became of a trial.
type result struct {
	*audit
	fleet.Report

	trial   *trial
	history []event
	stuck   bool
}

var errStuck = errors.New("not everything was settled in time")

// run runs the trial and checks every invariant. Violations are in the result; what
// else goes wrong fails the test.
func (tr *trial) run(t *testing.T) *result {
	t.Helper()
	tr.setDefaults(t)
	acked := make(chan *entry, 256)
	tr.ledger = newLedger(acked)
	tr.running = make(map[int]bool)
	if tr.Source = tr.ledger.source(tr.orders); tr.loss != nil {
		tr.Source = tr.loss.source(tr.ledger, tr.orders)
	}
	tr.Command = tr.command(t)
	tr.Observe = tr.observe
	tr.AtRest = tr.atRest

	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var beside sync.WaitGroup
	beside.Go(func() { tr.watchAcks(ctx, acked) })
	beside.Go(func() { tr.watchTime(ctx, cancel) })
	if tr.disturb != nil {
		beside.Go(func() {
			if err := tr.disturb(ctx, tr.ledger); err != nil {
				t.Errorf("the database could not be hurt as planned: %v", err)
			}
		})
	}
	report, err := fleet.Run(ctx, tr.Config)
	cancel(nil)
	beside.Wait()
	stuck := errors.Is(err, errStuck)
	if err != nil && !stuck {
		t.Errorf("fleet: %v", err)
	}
	st, err := tr.system.observer.state(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	history := append(readHistory(t, tr.Dir), tr.ledger.events...)
	r := &result{audit: check(tr, st, history), Report: report, trial: tr, stuck: stuck, history: history}
	r.found = append(r.found, tr.early...)
	if stuck {
		r.found = append(r.found, violation{"I10", key{}, fmt.Sprintf("%d deliveries were not settled, or messages left pending, within %s", report.Unsettled, tr.limit)})
	}
	tr.checkLogs(t)
	return r
}

func (tr *trial) setDefaults(t *testing.T) {
	t.Helper()
	setDefault(&tr.Workers, 3)
	setDefault(&tr.InFlight, 6)
	setDefault(&tr.HandlerTimeout, 2*time.Second)
	setDefault(&tr.CommitTimeout, 2*time.Second)
	setDefault(&tr.HoldLimit, 3*time.Second)
	setDefault(&tr.limit, 4*time.Minute)
	setDefault(&tr.MaxExits, 50)
	setDefault(&tr.MaxAttempts, 8)
	tr.Dir, tr.System, tr.URL = t.TempDir(), tr.system.name, tr.system.url
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// command starts this binary again as a worker; see TestMain.
func (tr *trial) command(t *testing.T) func(int) *exec.Cmd {
	t.Helper()
	told, err := json.Marshal(tr.setup)
	if err != nil {
		t.Fatal(err)
	}
	for worker := range tr.Workers {
		file, err := os.OpenFile(filepath.Join(tr.Dir, fmt.Sprintf("stderr-%d", worker)), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = file.Close() })
		tr.logs = append(tr.logs, file)
	}
	self := fleet.Self()
	detector := "GORACE=atexit_sleep_ms=0" // by default each exit would take a second
	if variants[tr.setup.Variant].shares {
		detector += " exitcode=0"
	}
	return func(worker int) *exec.Cmd {
		cmd := self(worker)
		cmd.Stderr = tr.logs[worker]
		cmd.Env = append(cmd.Environ(), setupEnv+"="+string(told),
			detector, "GOTRACEBACK=all")
		return cmd
	}
}

func (tr *trial) observe(e fleet.Event) {
	tr.ledger.observe(e)
	switch e.Kind {
	case fleet.EventStarted, fleet.EventExited:
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.running[e.PID] = e.Kind == fleet.EventStarted
	}
}

// watchAcks looks, for as many acks as it can, whether the message is settled: I3.
func (tr *trial) watchAcks(ctx context.Context, acked <-chan *entry) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-acked:
			ok, err := tr.system.observer.settled(ctx, e)
			if err != nil || ok || tr.ledger.mayBeLost(e) {
				continue // the database is down, or all is well
			}
			tr.mu.Lock()
			tr.early = append(tr.early, violation{"I3", e.key(), fmt.Sprintf("%q was acked before it was settled", e.Payload)})
			tr.mu.Unlock()
		}
	}
}

// watchTime ends a run that is stuck, with the stacks of all workers in their logs.
func (tr *trial) watchTime(ctx context.Context, end context.CancelCauseFunc) {
	timer := time.NewTimer(tr.limit)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-timer.C:
	}
	tr.ledger.happened("the time is over: SIGQUIT to all workers")
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
			if strings.Contains(bad, "RACE") && variants[tr.setup.Variant].shares {
				continue
			}
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
