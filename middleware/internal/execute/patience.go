package execute

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/text"
)

// patience bounds the store calls that a delivery makes one after the other. It uses one context
// for all of them, and one timer for all deliveries of an execution; context.WithTimeout would
// create both for each call. If a call takes too long its context is canceled, and the next call
// gets a new one.
type patience struct {
	ctx   context.Context //nolint:containedctx // handed out by start
	alarm *alarm          // nil: none yet, or it has fired
	limit time.Duration   // the current call's timeout; 0: no call is running
}

// alarm cancels the context of a call that takes too long. One that has fired is not used again: it
// may still be about to cancel.
type alarm struct {
	timer  *time.Timer
	cancel context.CancelFunc // of patience.ctx
}

// newAlarm returns an alarm that is not set.
func newAlarm() *alarm {
	a := new(alarm)
	a.timer = time.AfterFunc(math.MaxInt64, func() { a.cancel() })
	return a
}

// start returns a context for a call that may take limit.
func (p *patience) start(parent context.Context, limit time.Duration) context.Context {
	p.limit = limit
	if p.alarm == nil {
		p.alarm = newAlarm()
	}
	if p.ctx == nil {
		p.ctx, p.alarm.cancel = context.WithCancel(parent)
	}
	p.alarm.timer.Reset(limit)
	return p.ctx
}

// stop ends the call, and returns its error, which says so if the call took too long. A timer that
// has fired may not have canceled the context yet, so the next call must not get that context.
// bound names the limit in the configuration.
func (p *patience) stop(bound string, err error) error {
	limit := p.limit
	p.limit = 0
	if p.alarm.timer.Stop() {
		return err
	}
	p.ctx, p.alarm = nil, nil
	if err == nil {
		return nil
	}
	return &lateError{bound: bound, limit: limit, cause: err}
}

// end frees what start made, except the timer. The delivery may start again.
func (p *patience) end() {
	if p.ctx == nil {
		return
	}
	p.alarm.cancel()
	if p.limit == 0 {
		p.alarm.cancel = nil
	} else { // the call has not returned: it panicked, or exited the goroutine
		p.alarm.timer.Stop()
		p.alarm = nil
	}
	p.ctx, p.limit = nil, 0
}

// lateError is the error of a call that took too long.
type lateError struct {
	bound string
	limit time.Duration
	cause error
}

func (e *lateError) Error() string {
	return fmt.Sprintf("middleware: the store did not answer within InboxConfig.%s, %s: %s", e.bound, e.limit, text.Of(e.cause))
}

func (e *lateError) Unwrap() []error { return []error{context.DeadlineExceeded, e.cause} }
