package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// Hook observes deliveries. A hook implements one or more of the interfaces in this
// file; methods may be added by adding interfaces, never to one of them.
//
// Hooks are called in the order of InboxConfig.Hooks on the goroutine of the
// delivery, concurrently for different deliveries: they must be safe for concurrent
// use and fast. Start hooks may return a context derived from theirs, which is then
// the parent of what happens until the matching End; End hooks get the same. Only its
// values count: its deadline or cancellation ends nothing. A hook must not change or settle
// the message, nor keep it after DeliveryEnd. One that panics is logged, and passed over: the
// delivery goes on as if it had not been there.
type Hook any

// DeliveryStart describes a delivery as it arrives.
type DeliveryStart struct {
	Consumer stores.Consumer
	Topic    string
	Message  *message.Message
	Facts    brokers.Delivery // zero for subscribers not behind the brokers contract
	Retry    bool             // it comes from a RetryWorker
}

// DeliveryStartHook is called when a delivery arrives. The returned context is what
// the handler's context derives from.
type DeliveryStartHook interface {
	DeliveryStart(ctx context.Context, d DeliveryStart) context.Context
}

// TraceParentHook names the trace that is kept in the message's row, so that later
// deliveries can point to the one that did the work. ctx is what DeliveryStart returned.
// Without such a hook, or if all return the zero value, it is that of the message's
// metadata.
type TraceParentHook interface {
	TraceParent(ctx context.Context) stores.TraceParent
}

// Result is how the inbox let go of a delivery.
type Result string

const (
	ResultCompleted   Result = "completed"   // the handler ran and its effects are committed
	ResultDuplicate   Result = "duplicate"   // completed before; the handler did not run
	ResultQuarantined Result = "quarantined" // kept in quarantine; will be acked
	ResultParked      Result = "parked"      // failed, now or before, and kept for a retry worker; will be acked
	ResultGivenBack   Result = "given_back"  // the handler failed; counted, will be nacked for its next attempt
	ResultFailed      Result = "failed"      // failed for good, and kept as a dead letter; will be acked
	ResultFinal       Result = "final"       // failed for good or discarded before; will be acked
	ResultPanicked    Result = "panicked"    // the handler panicked or exited its goroutine; rolled back
	ResultNotNow      Result = "not_now"     // could not be decided; will be nacked
)

// DeliveryEnd describes how a delivery ended in the inbox. The router settles it
// afterwards.
type DeliveryEnd struct {
	Result  Result
	Reason  stores.Reason // of the quarantine, if ResultQuarantined
	Outcome stores.Outcome
	ID      []byte // the message id, nil if none was found; not to be kept
	Source  string // the link of the key chain that found it
	Cached  bool   // a duplicate known without asking the store
	Verdict stores.Verdict
	Runs    int  // how often the handler was run for this delivery
	Retry   bool // it came from a RetryWorker

	// Of the failure, for ResultParked, ResultGivenBack, ResultFailed and ResultPanicked.
	Class    stores.Class
	Attempts int           // that count, this one included
	DueIn    time.Duration // until the next attempt
	Final    bool          // there is none: the message has failed for good

	Held time.Duration // how long the delivery was held
	Took time.Duration
	Err  error // what the router gets, or why the message is in quarantine
}

// DeliveryEndHook is called when the inbox lets go of a delivery.
type DeliveryEndHook interface {
	DeliveryEnd(ctx context.Context, d DeliveryEnd)
}

// ClaimStartHook is called before the store is asked for a claim.
type ClaimStartHook interface {
	ClaimStart(ctx context.Context, c stores.Claim) context.Context
}

// ClaimEndHook is called with the store's answer.
type ClaimEndHook interface {
	ClaimEnd(ctx context.Context, v stores.Verdict, err error)
}

// LookStartHook is called before the store is asked where a suspect message stands, which
// comes before its claim.
type LookStartHook interface {
	LookStart(ctx context.Context, k stores.Key) context.Context
}

// LookEndHook is called with the store's answer.
type LookEndHook interface {
	LookEnd(ctx context.Context, v stores.Verdict, err error)
}

// HandlerEndHook is called when the handler has returned, before the transaction is
// ended.
type HandlerEndHook interface {
	HandlerEnd(ctx context.Context, took time.Duration, err error)
}

// CommitStartHook is called before a commit.
type CommitStartHook interface {
	CommitStart(ctx context.Context) context.Context
}

// CommitEndHook is called after a commit, with the store's answer.
type CommitEndHook interface {
	CommitEnd(ctx context.Context, err error)
}

// HoldHook is called each time a delivery is about to be held for a pause.
type HoldHook interface {
	Hold(ctx context.Context, reason error, pause time.Duration)
}

// IntakeHook is called when the intake of all consumers pauses because the store
// cannot be asked, and when it resumes. It has no context: it concerns no delivery.
type IntakeHook interface {
	IntakePaused(reason error)
	IntakeResumed(after time.Duration)
}

// RetrySkipHook is called by a RetryWorker for due messages that it did not run.
type RetrySkipHook interface {
	RetrySkipped(c stores.Consumer, reason SkipReason, n int)
}
