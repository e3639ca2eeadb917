package delivery

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/middleware/internal/keep"
	"github.com/millpond-go/millpond/stores"
)

// Arrival is a delivery as it came. It is written once, and never changed.
type Arrival struct {
	Claim   stores.Claim // without Take
	Origin  Origin
	Payload []byte // as it reached the inbox; for the fingerprint of what has none
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

// Origin is where the broker keeps a message.
type Origin struct {
	Topic       string
	Coordinates string
	Count       int  // deliveries, if the broker counts them
	Silent      bool // the subscriber does not tell redeliveries apart
}

// Unfit is why a message does not run.
type Unfit struct {
	Reason stores.Reason // of the quarantine; "": it has no consumer, and is given back
	Err    error
}

// Retry is a parked message that a retry worker has reserved.
type Retry struct {
	Row        stores.Retry
	Read       time.Time // of Row, before the store was asked
	Reserve    time.Duration
	Unreadable error // it cannot be restored
	Counted    bool  // its attempt is counted, because its codec may end the process
	Lent       int   // of the attempts: given back when this one ends in a known way
	presumed   bool  // before it was counted
	Spent      bool  // the last attempt has ended the process, so only its copy is missing
}

func (r *Retry) unreadable() bool { return r != nil && r.Unreadable != nil }

// Contexts of one delivery.
type Contexts struct {
	Shutdown context.Context //nolint:containedctx // the message's own: ends when the subscriber stops
	Detached context.Context //nolint:containedctx // from that: for the store, the handler and hooks
}

// Policy is what becomes of messages whose handler fails.
type Policy struct {
	budget.Limits
	budget.Backoff

	MaxImmediate int
	Placement    stores.Placement
	OrderWait    time.Duration
}

// Consumer is whose messages are counted.
type Consumer interface {
	// Known reports whether it is registered.
	Known() bool
	// Register registers it.
	Register(ctx context.Context) error
	// Suspects reports whether any of its deliveries may not be the first.
	Suspects() bool
	// Forget lets all consumers be registered anew: the tables were gone.
	Forget()
	// AdmitsStale returns why a message that is too old to be judged must not go to
	// quarantine now; nil: it may.
	AdmitsStale() error
	// Forgotten returns up to when it was purged, if that is later than when the broker took
	// a message that has no row.
	Forgotten(taken time.Time) (time.Time, error)
	// RegisterAgain registers all that were registered: another server has answered than
	// before, or an earlier state of it.
	RegisterAgain(ctx context.Context) error
}

// Handler runs the program's handler.
type Handler interface {
	// Run runs it in the open attempt, on the message as it arrived, and returns what it says.
	Run(ctx context.Context, x execute.Execution) ([]stores.Output, error)
	// Message is the message as it arrived, to be kept.
	Message() keep.Message
	// Changed reports whether it has changed the bytes of the payload since it arrived.
	Changed() bool
	// Acked reports whether it has acked the message itself.
	Acked() bool
	// Classify asks the program what kind of failure an error is; "" leaves it to the inbox.
	Classify(err error) stores.Class
}

// Observer is told how a delivery goes on.
type Observer interface {
	execute.Observer
	LookStarts(ctx context.Context, k stores.Key) context.Context
	LookEnds(ctx context.Context, v stores.Verdict, err error)
	// Held is called before each pause. store: others would meet the same trouble.
	Held(reason error, store bool, pause time.Duration)
	// Complains tells of what a codec or publisher refuses.
	Complains(text string, why error)
	// Parked tells that the store keeps a message until it is due.
	Parked(due time.Duration)
}
