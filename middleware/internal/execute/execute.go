// Package execute separates a delivery from how its attempts are executed: in a transaction of the
// store with the claim and the handler's effects, in such a transaction shared with other
// deliveries, or under a lease, where claim and completion have a commit each.
package execute

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Mode is a way of executing attempts. It is safe for concurrent use.
type Mode interface {
	// New returns an execution. It serves one delivery after another.
	New() Execution
}

// Execution executes one delivery's attempts, one after the other. It belongs to the delivery's
// goroutine.
type Execution interface {
	// Start begins a delivery. The contexts of its calls derive from parent.
	Start(parent context.Context, o Observer)

	// Claim asks for the claim. If the outcome is stores.Claimed, an attempt is open until Finish
	// or Undo.
	Claim(c stores.Claim) (stores.Verdict, error)

	// Context returns parent with the values that the handler needs of the open attempt.
	Context(parent context.Context) context.Context

	// Finish ends the attempt of a handler that succeeded. Ended.Err is nil if its effects and
	// outputs are proven to be committed. Otherwise it wraps stores.ErrNotCommitted or
	// stores.ErrCommitUnknown.
	Finish(outputs []stores.Output) Ended

	// Undo rolls an attempt back for a reason. Ended.Err says that the rollback failed, which also
	// ends the attempt.
	Undo(cause error) Ended

	// Open reports whether an attempt is open.
	Open() bool

	// Resolve reports whether the key is completed, once nothing is running that could still
	// complete it. can is false if only the next claim can tell.
	Resolve(k stores.Key) (completed, can bool, err error)

	// Escaped reports whether the attempt that ended last is committed all the same.
	Escaped() (committed bool, err error)

	// Close frees all resources. Claim may be called again.
	Close()

	// Forget drops all data of the delivery, before another Start.
	Forget()
}

// Ended describes how an attempt ended.
type Ended struct {
	Err         error
	Interrupted error // why the database interrupted it, or nil
	Refused     bool  // the database would refuse this message each time
	Escaped     bool  // it may be committed, in part or whole: ask Execution.Escaped

	// For a batch: the attempt ended because of sharing, and must run again, alone.
	Apart bool

	// For a lease.
	Again    bool   // Finish may be called again; the handler must not run again
	Happened bool   // the effect has happened; only its completion failed
	Lost     bool   // another holder has the lease
	Cut      error  // why the lease ended the handler's context, or nil
	Server   uint64 // the server of the commit, as in stores.Verdict
}

// Observer observes an execution's calls to the store. Each call uses the returned context.
type Observer interface {
	ClaimStarts(ctx context.Context, c stores.Claim) context.Context
	ClaimEnds(ctx context.Context, v stores.Verdict, err error)
	CommitStarts(ctx context.Context) context.Context
	CommitEnds(ctx context.Context, err error)
}

// Bounds are timeouts of single calls.
type Bounds struct{ Claim, Commit time.Duration }
