// Package leased is how the inbox and the stores' typed handlers agree on a handler's run under a
// lease.
package leased

import "context"

// Run is the run of a handler under a lease.
type Run interface {
	// OnComplete runs f in the transaction that completes the message, each time the completion is
	// tried. f's ctx has the transaction. An error says that the run is over.
	OnComplete(f func(ctx context.Context) error) error

	// Once returns the recorded result of the step with that name. Without one it runs f and
	// records f's result.
	Once(name string, f func() ([]byte, error)) ([]byte, error)
}

// Key is the context key of a handler's run. The value is a Run.
type Key struct{}

// Of returns the run that a context belongs to.
func Of(ctx context.Context) (Run, bool) {
	run, ok := ctx.Value(Key{}).(Run)
	return run, ok
}
