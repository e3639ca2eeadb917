package execute

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/text"
)

// patience bounds the store calls that a delivery makes one after the other. It uses one context
// and one timer for all of them, where context.WithTimeout would create both for each call. The
// context of a call that took too long is canceled, and the next call gets a new one.
type patience struct {
	ctx    context.Context //nolint:containedctx // handed out by start
	cancel context.CancelFunc
	timer  *time.Timer
	limit  time.Duration // the timeout of the call
}

// start returns a context for a call that may take limit.
func (p *patience) start(parent context.Context, limit time.Duration) context.Context {
	p.limit = limit
	if p.ctx == nil {
		p.ctx, p.cancel = context.WithCancel(parent)
		p.timer = time.AfterFunc(limit, p.cancel)
		return p.ctx
	}
	p.timer.Reset(limit)
	return p.ctx
}

// stop ends the call, and returns its error, which says so if the call took too long. A timer
// that has fired may not have canceled the context yet, so the next call must not get that
// context. bound names the limit in the configuration.
func (p *patience) stop(bound string, err error) error {
	if p.timer.Stop() {
		return err
	}
	p.ctx = nil
	if err == nil {
		return nil
	}
	return &lateError{bound: bound, limit: p.limit, cause: err}
}

// end frees what start has made. The delivery may start again.
func (p *patience) end() {
	if p.cancel != nil {
		p.timer.Stop()
		p.cancel()
		p.ctx = nil
	}
}

// lateError is the error of a call that took too long.
type lateError struct {
	bound string
	limit time.Duration
	cause error
}

func (e *lateError) Error() string {
	return fmt.Sprintf("middleware: the store was asked up to the limit InboxConfig.%s, %s: %s", e.bound, e.limit, text.Of(e.cause))
}

func (e *lateError) Unwrap() []error { return []error{context.DeadlineExceeded, e.cause} }
