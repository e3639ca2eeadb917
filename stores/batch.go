package stores

import "context"

// Batcher is implemented by stores that can hold the claims of several messages in one
// transaction, which their handlers have one after the other. It is safe for concurrent use.
type Batcher interface {
	// BatchLimit is how many members a batch may have while as many batches as concurrent run
	// in this process. Below 2 there are to be none. It is known once a consumer is registered.
	BatchLimit(concurrent int) int

	// BeginBatch decides claims of one consumer, each by its own key, none of them with Take or
	// OrderKey. A claim that is not won is as if it had not been asked for, once the batch
	// has ended: Begin tells why then. All else is as with Begin; after an error there is no
	// batch.
	BeginBatch(ctx context.Context, claims []Claim) (Batch, error)
}

// Batch is one transaction that holds the claims of its members. Commit or Rollback ends
// it. Its methods and those of its members are called by one goroutine at a time, but for
// Cut.
//
// At most one member has the transaction at a time, from its first use in the handler to
// Keep or Leave. Once either has returned an error that wraps ErrBatchLost, Rollback is all
// that is left.
type Batch interface {
	// Members has one member for each claim, nil if it was not won.
	Members() []Member

	// Server is what Verdict.Server is.
	Server() uint64

	// Commit commits the members that were kept, and none of the others' claims: nil is
	// proof of both. Otherwise the error is one of Attempt.Commit, for all of them.
	Commit(ctx context.Context) error

	// Rollback ends the batch and leaves no trace of it. After Commit or a first Rollback it
	// does nothing.
	Rollback(ctx context.Context) error

	// Cut ends the batch while a member that has the transaction does not return: its
	// connection is closed, whatever uses it. It may be called at any time.
	Cut()
}

// Droppable is implemented by members whose handlers can hand over statements that are sent with
// COMMIT. One that fails drops its member, and the others are committed.
type Droppable interface {
	// Dropped returns why a member that was kept is not among those that Batch.Commit has
	// committed: an error of Member.Keep. It is asked when that has returned nil.
	Dropped() error
}

// Member is one run of a handler in the transaction of a batch. It implements the optional
// interfaces of the attempts of its store.
type Member interface {
	Emitter

	// Context returns parent with the native transaction, for the handler. The context's
	// value is the member itself.
	Context(parent context.Context) context.Context

	// Keep ends the run of a handler that has succeeded, and keeps its effects, outputs and
	// claim for Batch.Commit. Otherwise the member has left, and the error is one of
	// Attempt.Commit: it wraps ErrNotCommitted, and says what is wrong with this member. If it
	// wraps ErrNotShared nothing is, and the handler is to be run again in a transaction of
	// its own.
	Keep(ctx context.Context) error

	// Leave ends the run and undoes its effects and its claim. The key stays taken until the
	// batch has ended. An error wraps ErrNotShared or ErrBatchLost.
	Leave(ctx context.Context) error
}
