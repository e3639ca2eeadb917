package middleware

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// Hook observes deliveries. A hook implements one or more of the interfaces in this file. New
// methods come as new interfaces, never in an existing one.
//
// Hooks are called in the order of InboxConfig.Hooks, on the goroutine of the delivery, and
// concurrently for different deliveries: they must be fast and safe for concurrent use. A start
// hook may return a context derived from its own, which is the parent of everything until the
// matching end hook; only its values count, not its deadline or cancellation. A hook must not
// change or settle the message, nor keep it after DeliveryEnd. A hook's panic is logged, and the
// delivery goes on.
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

// TraceParentHook returns the trace parent that is kept in the message's row, so that duplicates
// can link to the delivery that completed the message. ctx is what DeliveryStart returned. If no
// hook returns one, the row keeps the trace parent of the message's metadata.
type TraceParentHook interface {
	TraceParent(ctx context.Context) stores.TraceParent
}

// Result is how a delivery ended in the inbox.
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

// DeliveryEnd describes how a delivery ended in the inbox, before the router settles it.
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

	// About the failure, for ResultParked, ResultGivenBack, ResultFailed and ResultPanicked.
	Class    stores.Class
	Attempts int           // counted attempts, this one included
	DueIn    time.Duration // until the next attempt
	Final    bool          // the message has failed for good; there is no next attempt

	Held time.Duration // how long the delivery was held
	Took time.Duration
	Err  error // why it ended so; the router gets it if Result is given_back, not_now or panicked
}

// DeliveryEndHook is called when a delivery ends in the inbox.
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

// LookStartHook is called before a message is looked up, because it is suspect, or while most
// messages are duplicates. The look precedes the claim.
type LookStartHook interface {
	LookStart(ctx context.Context, k stores.Key) context.Context
}

// LookEndHook is called with the store's answer.
type LookEndHook interface {
	LookEnd(ctx context.Context, v stores.Verdict, err error)
}

// HandlerEndHook is called when the handler has returned, before its transaction ends.
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

// IntakeHook is called when the intake of all consumers pauses because the store does not answer,
// and when it resumes, by a goroutine of any delivery. It gets no context, because it concerns no
// single delivery.
type IntakeHook interface {
	IntakePaused(reason error)
	IntakeResumed(after time.Duration)
}

// ServerHook is called when the database server was replaced, restarted or restored to an earlier
// state. The caches are flushed. err says why the consumers could not be registered again yet;
// otherwise it is nil.
type ServerHook interface {
	ServerChanged(err error)
}

// BatchEnd describes a transaction that several messages shared; see InboxConfig.BatchByHandler.
type BatchEnd struct {
	Consumer stores.Consumer
	Size     int   // claims that it won
	Kept     int   // messages that it was to commit
	NotWon   int   // claims that it did not win
	Failed   int   // messages whose handler failed
	Apart    int   // messages whose handler needs a transaction of its own
	Late     int   // messages that were not begun in time, or before the batch was lost
	Lost     error // why nothing was committed, or the commit is unknown; nil: committed
	Took     time.Duration
}

// BatchHook is called when the shared transaction of several messages has ended, by a goroutine of
// any of them or by a timer. It gets no context, because it concerns no single delivery.
type BatchHook interface {
	BatchEnded(b BatchEnd)
}

// RetrySkipHook is called when a RetryWorker skips due messages, by a goroutine of its own.
type RetrySkipHook interface {
	RetrySkipped(c stores.Consumer, reason SkipReason, n int)
}
