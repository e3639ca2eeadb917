package execute

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/leased"
	"github.com/millpond-go/millpond/stores"
)

// renewals is how often a lease is renewed within its TTL.
const renewals = 3

// run is a handler's run under a lease. Goroutines that the handler leaves behind may use it after
// its end.
type run struct {
	mu     sync.Mutex
	until  time.Time // when the lease expires
	over   bool
	writes []func(context.Context) error
	steps  *journal

	ctx     context.Context //nolint:containedctx // the handler's
	cancel  context.CancelCauseFunc
	ends    time.Time // the handler's deadline
	stop    chan struct{}
	stopped chan struct{}
}

var _ leased.Run = (*run)(nil)

func newRun(until time.Time, steps *journal) *run {
	return &run{until: until, steps: steps, stop: make(chan struct{}), stopped: make(chan struct{})}
}

// renewal says how a run's lease is renewed.
type renewal struct {
	ttl    time.Duration
	extend func(ctx context.Context) error
	parent context.Context //nolint:containedctx // for the calls
}

// begin returns the handler's context, and starts renewing the lease.
func (r *run) begin(parent context.Context, how renewal) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	r.ctx, r.cancel = &runContext{ctx, r}, cancel
	r.ends, _ = parent.Deadline()
	go r.renew(ctx, cancel, how)
	return r.ctx
}

// renew renews the lease until the handler has returned or its time is over. If the lease cannot be
// renewed, the handler's context ends some time before the lease does.
func (r *run) renew(ctx context.Context, cancel context.CancelCauseFunc, how renewal) {
	defer close(r.stopped)
	margin := how.ttl / 10
	every := how.ttl / renewals
	timer := time.NewTimer(min(every, time.Until(r.until)-margin))
	defer timer.Stop()
	for {
		select {
		case <-r.stop:
			cancel(context.Canceled)
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		asked := time.Now()
		if !asked.Before(r.ends) { // both timers may have fired at once
			return
		}
		left := r.until.Sub(asked) - margin
		if left <= 0 {
			cancel(fmt.Errorf("%w: it could not be renewed in time", ErrLeaseLost))
			return
		}
		question, done := context.WithTimeout(how.parent, min(left, every))
		err := how.extend(question)
		done()
		switch {
		case err == nil:
			r.mu.Lock()
			r.until = asked.Add(how.ttl)
			r.mu.Unlock()
			timer.Reset(every)
		case errors.Is(err, stores.ErrChanged):
			cancel(ErrLeaseLost)
			return
		default:
			timer.Reset(min(every/4, max(0, time.Until(r.until)-margin)))
		}
	}
}

// end ends the run, and returns when the lease expires.
func (r *run) end() time.Time {
	r.mu.Lock()
	first := !r.over
	r.over = true
	r.mu.Unlock()
	if first {
		close(r.stop)
	}
	if r.ctx != nil {
		<-r.stopped
		r.steps.close()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until
}

func (r *run) isOver() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// cut returns why the lease ended the handler's context, or nil.
func (r *run) cut() error {
	if r.ctx != nil {
		if err := context.Cause(r.ctx); errors.Is(err, ErrLeaseLost) {
			return err //nolint:wrapcheck // our own error
		}
	}
	return nil
}

func (r *run) context() context.Context { return r.ctx }

func (r *run) deadline() time.Time { return r.ends }

var errRunOver = errors.New("middleware: OnComplete was called after the handler had returned")

// OnComplete implements leased.Run.
func (r *run) OnComplete(f func(context.Context) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return errRunOver
	}
	r.writes = append(r.writes, f)
	return nil
}

// Once implements leased.Run.
func (r *run) Once(name string, f func() ([]byte, error)) (result []byte, err error) {
	defer func() {
		if errors.Is(err, ErrLeaseLost) {
			r.cancel(err)
		}
	}()
	var found bool
	result, found, err = r.steps.begin(r.ctx, name)
	if !found && err == nil {
		err = r.lapsed()
	}
	if found || err != nil {
		return result, err
	}
	if result, err = f(); err != nil {
		return nil, err
	}
	return result, r.steps.record(r.ctx, stores.Step{Name: name, Result: result})
}

// lapsed returns why no further step may begin, or nil. A process that was suspended may get here
// before its context ends, when the message is completed and its recorded steps are gone.
func (r *run) lapsed() error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx) //nolint:wrapcheck // ours, or the delivery's
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !time.Now().Before(r.until) {
		return fmt.Errorf("%w: it has expired", ErrLeaseLost)
	}
	return nil
}

func (r *run) completions() []func(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.writes
}

// runContext is the context of a handler under a lease.
type runContext struct {
	context.Context //nolint:containedctx // this is a context

	run *run
}

// Value implements context.Context.
func (c *runContext) Value(key any) any {
	if key == (leased.Key{}) {
		return c.run
	}
	return c.Context.Value(key)
}

// holder is this process's name, and a counter for its leases.
var holder = struct {
	process string
	leases  atomic.Int64
}{process: processName()}

func processName() string {
	host, _ := os.Hostname()
	const most = 100
	return fmt.Sprintf("%.*s/%d/%s", most, host, os.Getpid(), rand.Text()[:10])
}

func newHolder() string { return fmt.Sprintf("%s/%d", holder.process, holder.leases.Add(1)) }
