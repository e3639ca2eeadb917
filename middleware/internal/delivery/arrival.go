package delivery

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/middleware/internal/keep"
	"github.com/millpond-go/millpond/stores"
)

// Arrival is a delivery as it arrived. It never changes.
type Arrival struct {
	Claim   stores.Claim // without Take
	Origin  Origin
	Payload []byte // as it reached the inbox; for the fingerprint of a message without an id
	Suspect bool   // its last attempt may have ended a process
	Unfit   *Unfit // nil: it may run
	Retry   *Retry // nil: it comes from the broker
	Policy  *Policy
	Mode    execute.Mode

	Consumer Consumer
	Handler  Handler
	Observer Observer
	Contexts Contexts
}

// Origin is where a message is at its broker.
type Origin struct {
	Topic       string
	Coordinates string
	Count       int  // deliveries, if the broker counts them
	Silent      bool // the subscriber does not flag redeliveries
}

// Unfit is why a message does not run.
type Unfit struct {
	Reason stores.Reason // for the quarantine; "": it has no consumer, and is given back
	Err    error
}

// Retry is a parked message that a retry worker reserved.
type Retry struct {
	Row        stores.Retry
	Read       time.Time // when Row was read, before the store was asked
	Reserve    time.Duration
	Unreadable error // why it cannot be restored
	Counted    bool  // its attempt is counted before Decode, which may end the process
	Lent       int   // attempts to give back when this one ends in a known way
	presumed   bool  // FailureState.Presumed, before the attempt was counted
	Spent      bool  // the last attempt ended the process; only the copy is missing
}

func (r *Retry) unreadable() bool { return r != nil && r.Unreadable != nil }

// Contexts are the contexts of one delivery.
type Contexts struct {
	Shutdown context.Context //nolint:containedctx // the message's own: ends when the subscriber stops
	Detached context.Context //nolint:containedctx // Shutdown without its end: for the store, the handler and hooks
}

// Policy says what becomes of messages whose handler fails.
type Policy struct {
	budget.Limits
	budget.Backoff

	MaxImmediate int
	Placement    stores.Placement
	OrderWait    time.Duration
}

// Consumer is a delivery's consumer.
type Consumer interface {
	// Known reports whether the consumer is registered.
	Known() bool
	// Register registers the consumer.
	Register(ctx context.Context) error
	// Suspects reports whether a delivery that looks like the first may be a redelivery.
	Suspects() bool
	// Repeats returns the consumer's count of duplicates.
	Repeats() *Repeats
	// Forget makes all consumers register again, because the tables were gone.
	Forget()
	// AdmitsStale returns why a message that is too old to be judged must be held instead of
	// quarantined; nil: quarantine it.
	AdmitsStale() error
	// Forgotten returns the purge's watermark if a message without a row, taken by the broker at
	// taken, is older, and otherwise zero.
	Forgotten(taken time.Time) (time.Time, error)
	// RegisterAgain registers all known consumers again, after the server was replaced, restarted
	// or restored.
	RegisterAgain(ctx context.Context) error
}

// Handler runs the program's handler.
type Handler interface {
	// Run runs the handler in the open attempt, on the message as it arrived, and returns its
	// outputs.
	Run(ctx context.Context, x execute.Execution) ([]stores.Output, error)
	// Message returns the message as it arrived, to be kept.
	Message() keep.Message
	// Changed reports whether the handler changed the bytes of the payload in place.
	Changed() bool
	// Acked reports whether the handler acked the message itself.
	Acked() bool
	// Classify asks the program for an error's class; "" leaves it to the inbox.
	Classify(err error) stores.Class
}

// Observer observes the course of a delivery.
type Observer interface {
	execute.Observer
	LookStarts(ctx context.Context, k stores.Key) context.Context
	LookEnds(ctx context.Context, v stores.Verdict, err error)
	// Held is called before each pause. store: the reason would also stop other deliveries.
	Held(reason error, store bool, pause time.Duration)
	// Complains is called when a codec or publisher refuses the message.
	Complains(text string, why error)
	// Parked is called when the store keeps the message until it is due.
	Parked(due time.Duration)
}
