package batch

import (
	"context"
	"sync"
	"time"
)

// bounded is a context that ends some time after its first use. A member that leaves sends
// something; one that stays mostly does not, and then a timer would cost more than everything else.
type bounded struct {
	parent context.Context //nolint:containedctx // this is a context
	after  time.Duration

	mu     sync.Mutex
	ctx    context.Context //nolint:containedctx // nil: not used yet
	cancel context.CancelFunc
}

var _ context.Context = (*bounded)(nil)

func (b *bounded) use() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx == nil {
		b.ctx, b.cancel = context.WithTimeout(b.parent, b.after)
	}
	return b.ctx
}

// end ends the context, if it was used.
func (b *bounded) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx != nil {
		b.cancel()
	}
}

// Deadline implements context.Context.
func (b *bounded) Deadline() (time.Time, bool) { return b.use().Deadline() }

// Done implements context.Context.
func (b *bounded) Done() <-chan struct{} { return b.use().Done() }

// Err implements context.Context.
func (b *bounded) Err() error { return b.use().Err() }

// Value implements context.Context.
func (b *bounded) Value(key any) any { return b.use().Value(key) }
