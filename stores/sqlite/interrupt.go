package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// handling is the period in which a handler may run statements. The driver interrupts a statement
// whose context ends; the end of handling's context ends them all.
type handling struct {
	over   atomic.Pointer[error] // why no more statements may begin
	ctx    context.Context       // ends interruptAfter after over is set
	cancel context.CancelFunc
	bound  *time.Timer // nil: no bound
}

// interruptAfter is how long a running statement has left before it is interrupted. The driver
// interrupts once, and SQLite ignores that until the statement has reached its first step, which
// takes microseconds.
const interruptAfter = 20 * time.Millisecond

// errBound ends statements that were sent without a deadline, or with a late one, and would block
// the writer.
var errBound = fmt.Errorf("sqlite: the claim's bound has passed: %w", context.DeadlineExceeded)

var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func newHandling() *handling {
	h := &handling{}
	h.ctx, h.cancel = context.WithCancel(context.Background()) //nolint:gosec // G118: interrupt calls it; without that there is nothing to free
	return h
}

// begin starts the clock. Zero: no bound.
func (h *handling) begin(bound time.Duration) {
	if bound > 0 {
		h.bound = time.AfterFunc(bound, func() { h.interrupt(errBound) })
	}
}

// interrupt refuses further statements, and ends the running one.
func (h *handling) interrupt(reason error) {
	if h.over.CompareAndSwap(nil, &reason) {
		time.AfterFunc(interruptAfter, h.cancel)
	}
}

// leave interrupts statements that the handler left behind. It may be called again, and on nil.
func (h *handling) leave() {
	if h != nil {
		h.interrupt(sql.ErrTxDone)
		h.end()
	}
}

// end stops the clock. It may be called again, and on nil.
func (h *handling) end() {
	if h != nil && h.bound != nil {
		h.bound.Stop()
	}
}

// statement returns the context for a statement that was sent with ctx. It ends with ctx and with
// the handling. The caller passes the statement's error to done, which releases the context and
// returns the error to report. Without a handling, in the store's own transactions, the context is
// ctx.
func (h *handling) statement(ctx context.Context) (merged context.Context, done func(error) error) {
	if h == nil {
		return ctx, func(err error) error { return err }
	}
	if h.over.Load() != nil {
		return cancelled, h.explain
	}
	if ctx.Done() == nil {
		return h.ctx, h.explain
	}
	merged, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(h.ctx, cancel)
	return merged, func(err error) error {
		stop()
		cancel()
		if ctx.Err() != nil {
			return err
		}
		return h.explain(err)
	}
}

// explain returns why a statement was interrupted.
func (h *handling) explain(err error) error {
	if reason := h.over.Load(); reason != nil && errors.Is(err, context.Canceled) {
		return *reason
	}
	return err
}
