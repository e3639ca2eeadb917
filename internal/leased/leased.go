// Package leased is how the inbox and the typed handlers of stores agree on a handler's run
// under a lease.
package leased

import "context"

// Run is the run of a handler under a lease.
type Run interface {
	// OnComplete runs f in the transaction that completes the message, each time that this
	// is tried. ctx has the transaction. An error says that the run is over.
	OnComplete(f func(ctx context.Context) error) error

	// Once returns what is on record for a step of that name. If nothing is it runs f, and
	// records what that returns.
	Once(name string, f func() ([]byte, error)) ([]byte, error)
}

// Key is the key of a run in the context of its handler. The value is a Run.
type Key struct{}

// Of returns the run that a context belongs to.
func Of(ctx context.Context) (Run, bool) {
	run, ok := ctx.Value(Key{}).(Run)
	return run, ok
}
