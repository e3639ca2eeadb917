package execute

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// Transaction executes each attempt in a transaction of the store.
type Transaction struct {
	store    stores.Inbox
	resolver stores.Resolver // nil: the store is no Resolver
	bounds   Bounds
}

// InTransactions returns the mode for a store.
func InTransactions(store stores.Inbox, b Bounds) *Transaction {
	resolver, _ := store.(stores.Resolver)
	return &Transaction{store: store, resolver: resolver, bounds: b}
}

// New implements Mode.
func (t *Transaction) New() Execution { return &inTransaction{mode: t} }

// inTransaction executes one delivery's attempts.
type inTransaction struct {
	mode     *Transaction
	parent   context.Context //nolint:containedctx // for all calls of the delivery
	observer Observer
	patience patience
	open     stores.Attempt // nil: no attempt is open
	last     stores.Attempt // the attempt that ended last
}

// Start implements Execution.
func (x *inTransaction) Start(parent context.Context, o Observer) {
	x.parent, x.observer = parent, o
}

// Claim implements Execution.
func (x *inTransaction) Claim(c stores.Claim) (v stores.Verdict, err error) {
	ctx := x.patience.start(x.parent, x.mode.bounds.Claim)
	return x.begin(x.observer.ClaimStarts(ctx, c), &c)
}

func (x *inTransaction) begin(ctx context.Context, c *stores.Claim) (v stores.Verdict, err error) {
	x.open, v, err = x.mode.store.Begin(ctx, *c)
	err = x.patience.stop("ClaimTimeout", err)
	x.observer.ClaimEnds(ctx, v, err)
	return v, err
}

// Context implements Execution.
func (x *inTransaction) Context(parent context.Context) context.Context {
	return x.open.Context(parent)
}

// Open implements Execution.
func (x *inTransaction) Open() bool { return x.open != nil }

// Finish implements Execution.
func (x *inTransaction) Finish(outputs []stores.Output) Ended {
	if len(outputs) > 0 {
		if err := x.emit(outputs); err != nil && !errors.Is(err, stores.ErrTxClosed) { // Commit says why
			end := x.Undo(err)
			end.Err = fmt.Errorf("%w: %w", stores.ErrNotCommitted, errors.Join(err, end.Err))
			return end
		}
	}
	ctx := x.patience.start(x.parent, x.mode.bounds.Commit)
	ctx = x.observer.CommitStarts(ctx)
	x.last, x.open = x.open, nil
	err := x.patience.stop("CommitTimeout", x.last.Commit(ctx))
	x.observer.CommitEnds(ctx, err)
	if !errors.Is(err, stores.ErrNotCommitted) {
		return Ended{Err: err}
	}
	return x.ended(err, err)
}

func (x *inTransaction) emit(outputs []stores.Output) error {
	to, ok := x.open.(stores.Emitter)
	if !ok {
		return fmt.Errorf("%w: a %T cannot keep outputs", stores.ErrInvalidOutput, x.mode.store)
	}
	return to.Emit(outputs) //nolint:wrapcheck // the store's own error
}

// Undo implements Execution.
func (x *inTransaction) Undo(cause error) Ended {
	x.last, x.open = x.open, nil
	err := x.patience.stop("CommitTimeout", x.last.Rollback(x.patience.start(x.parent, x.mode.bounds.Commit)))
	return x.ended(err, cause)
}

// ended asks the attempt how it ended, as far as it can tell.
func (x *inTransaction) ended(err, cause error) Ended {
	end := Ended{Err: err}
	if i, ok := x.last.(stores.Interruptible); ok {
		end.Interrupted = i.Interrupted()
	}
	if r, ok := x.last.(stores.Refusing); ok {
		end.Refused = r.Refuses(cause)
	}
	_, escapable := x.last.(stores.Escapable)
	end.Escaped = escapable && errors.Is(err, stores.ErrTxEscaped)
	return end
}

// Resolve implements Execution.
func (x *inTransaction) Resolve(k stores.Key) (completed, can bool, err error) {
	if x.mode.resolver == nil {
		return false, false, nil
	}
	ctx, cancel := context.WithTimeout(x.parent, x.mode.bounds.Commit)
	defer cancel()
	completed, err = x.mode.resolver.Resolve(ctx, k)
	return completed, true, err
}

// Escaped implements Execution.
func (x *inTransaction) Escaped() (committed bool, err error) {
	escaped, ok := x.last.(stores.Escapable)
	if !ok {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(x.parent, x.mode.bounds.Commit)
	defer cancel()
	return escaped.Escaped(ctx)
}

// Close implements Execution.
func (x *inTransaction) Close() { x.patience.end() }

// Forget implements Execution.
func (x *inTransaction) Forget() { *x = inTransaction{mode: x.mode, patience: x.patience} }
