// Package execute is the seam between a delivery and the way in which its attempts are
// executed: in a transaction of the store that holds the claim and the handler's effects, in
// one that it shares with other deliveries, or under a lease, which is a claim in a commit of
// its own and a completion in another one.
package execute

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Mode is a way to execute attempts. It is safe for concurrent use.
type Mode interface {
	// New returns an execution, for one delivery after the other.
	New() Execution
}

// Execution executes the attempts of one delivery, one after the other. It belongs to the
// delivery's goroutine.
type Execution interface {
	// Start begins with a delivery, whose questions get contexts from parent.
	Start(parent context.Context, o Observer)

	// Claim asks for the claim. If the outcome is stores.Claimed an attempt is open, until
	// Finish or Undo.
	Claim(c stores.Claim) (stores.Verdict, error)

	// Context returns parent with what the handler needs of the open attempt.
	Context(parent context.Context) context.Context

	// Finish ends the attempt of a handler that has succeeded. Ended.Err is nil if its
	// effects and outputs are committed, and that is proven; otherwise it wraps
	// stores.ErrNotCommitted or stores.ErrCommitUnknown.
	Finish(outputs []stores.Output) Ended

	// Undo ends an attempt for a reason, without a trace. Ended.Err says that it could not
	// be undone in order, which ends it too.
	Undo(cause error) Ended

	// Open reports whether an attempt is open.
	Open() bool

	// Resolve reports whether the key is completed, once nothing that could still complete it
	// is running. can is false if nobody can tell but the next claim.
	Resolve(k stores.Key) (completed, can bool, err error)

	// Escaped reports whether the attempt that was ended last is committed all the same.
	Escaped() (committed bool, err error)

	// Close frees what is left. Claim may be called again.
	Close()

	// Forget drops all that it has of the delivery, before another Start.
	Forget()
}

// Ended is how an attempt has ended.
type Ended struct {
	Err         error
	Interrupted error // why the database kept it from succeeding, if it did
	Refused     bool  // the database would refuse this message each time
	Escaped     bool  // it may be committed, in part or whole: ask Execution.Escaped

	// Of a batch: what it shared is the reason, and it is to be run again, which is then alone.
	Apart bool

	// Of a lease.
	Again  bool   // Finish may be called again: the handler must not be run again for this
	Lost   bool   // it is another holder's
	Cut    error  // why the handler's context has ended, if the lease was the reason
	Server uint64 // that has committed, as stores.Verdict has it
}

// Observer is told of what an execution asks of the store. A context that it returns is that
// of the question.
type Observer interface {
	ClaimStarts(ctx context.Context, c stores.Claim) context.Context
	ClaimEnds(ctx context.Context, v stores.Verdict, err error)
	CommitStarts(ctx context.Context) context.Context
	CommitEnds(ctx context.Context, err error)
}

// Bounds are the longest times of single questions.
type Bounds struct{ Claim, Commit time.Duration }
