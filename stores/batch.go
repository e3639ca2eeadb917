package stores

import "context"

// Batcher is implemented by stores that can hold the claims of several messages in one
// transaction. Their handlers use it one after the other. It is safe for concurrent use.
type Batcher interface {
	// BatchLimit is the largest number of members of a batch while concurrent batches run in this
	// process. Below 2 no batch may begin. It is known once a consumer is registered.
	BatchLimit(concurrent int) int

	// BeginBatch decides claims of one consumer, each by its own key, none of them with Take or
	// OrderKey. A claim that is not won leaves no trace once the batch has ended; Begin then
	// tells why. Everything else is as with Begin; after an error there is no batch.
	BeginBatch(ctx context.Context, claims []Claim) (Batch, error)
}

// Batch is one transaction that holds the claims of its members. Commit or Rollback ends it. Its
// methods and those of its members, except Cut, are called by one goroutine at a time.
//
// At most one member has the transaction at a time, from its first use in the handler to Keep or
// Leave. After either has returned an error that wraps ErrBatchLost, only Rollback may follow.
type Batch interface {
	// Members has one member for each claim, nil for a claim that was not won.
	Members() []Member

	// Server is the Verdict.Server of the batch.
	Server() uint64

	// Commit commits the members that were kept, and no claim of the others: nil proves both.
	// Otherwise the error is one of Attempt.Commit, for all of them.
	Commit(ctx context.Context) error

	// Rollback ends the batch and leaves no trace of it. After Commit or a first Rollback it
	// does nothing.
	Rollback(ctx context.Context) error

	// Cut ends the batch while a member does not return the transaction: it closes the
	// connection, even if it is in use. It may be called at any time.
	Cut()
}

// Droppable is implemented by members whose handlers can queue statements that are sent with
// COMMIT. A statement that fails drops its member, and the others are committed.
type Droppable interface {
	// Dropped returns why Batch.Commit did not commit a kept member: an error of Member.Keep. It
	// is called after Batch.Commit has returned nil.
	Dropped() error
}

// Member is one run of a handler in the transaction of a batch. It implements the optional
// interfaces of the attempts of its store.
type Member interface {
	Emitter

	// Context returns parent with the native transaction, for the handler. The context's
	// value is the member itself.
	Context(parent context.Context) context.Context

	// Keep ends the run of a handler that has succeeded, and keeps its effects, outputs and claim
	// for Batch.Commit. After an error the member has left. The error is one of Attempt.Commit:
	// it wraps ErrNotCommitted and says what is wrong with this member. If it wraps ErrNotShared,
	// nothing is wrong, and the handler must run again in a transaction of its own. With a
	// *NotSharedError it runs alone from then on.
	Keep(ctx context.Context) error

	// Leave ends the run and undoes its effects and its claim. The key stays taken until the
	// batch has ended. Errors wrap ErrNotShared or ErrBatchLost.
	Leave(ctx context.Context) error
}
