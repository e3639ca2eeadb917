package middleware

import (
	"context"
	"time"
)

// patience bounds the calls to the store that a delivery makes one after the other:
// one context and one timer for all of them, where context.WithTimeout would make both
// anew for each. The context of a call that took too long is canceled, and the next
// call gets another one.
type patience struct {
	ctx    context.Context //nolint:containedctx // handed out by start
	cancel context.CancelFunc
	timer  *time.Timer
}

// start returns a context for a call that may take as long as limit.
func (p *patience) start(parent context.Context, limit time.Duration) context.Context {
	if p.ctx == nil || p.ctx.Err() != nil {
		p.ctx, p.cancel = context.WithCancel(parent)
		p.timer = time.AfterFunc(limit, p.cancel)
		return p.ctx
	}
	p.timer.Reset(limit)
	return p.ctx
}

// stop ends the call.
func (p *patience) stop() { p.timer.Stop() }

// end frees what start has made.
func (p *patience) end() {
	if p.cancel != nil {
		p.timer.Stop()
		p.cancel()
	}
}
