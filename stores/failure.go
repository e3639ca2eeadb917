package stores

import (
	"context"
	"time"
)

// Class says what kind of failure an attempt ended with. Programs may use words of
// their own; these are those that the inbox gives.
type Class string

const (
	ClassTransient   Class = "transient"   // the handler returned an error; the default
	ClassPermanent   Class = "permanent"   // trying again cannot help
	ClassContention  Class = "contention"  // an optimistic-locking retry: tried again at once
	ClassTimeout     Class = "timeout"     // the handler returned after its deadline
	ClassPanic       Class = "panic"       // the handler panicked or exited its goroutine
	ClassConduct     Class = "conduct"     // the handler did to its transaction what it must not
	ClassOutputs     Class = "outputs"     // the handler returned messages, which cannot be kept yet
	ClassCrash       Class = "crash"       // the process ended while the handler ran
	ClassInterrupted Class = "interrupted" // the database's doing: a deadlock, a lost connection; not counted
	ClassUnknown     Class = "unknown"     // the outcome of the commit could not be found out; not counted
	ClassOrder       Class = "order"       // no attempt: it waits behind an earlier message of its order key
	ClassUnreadable  Class = "unreadable"  // what was kept of the message cannot be read back
)

// Limits of what is kept of errors. Stores cut what is longer, and replace what a
// text column cannot hold.
const (
	MaxErrorBytes        = 4 << 10 // of the last error
	MaxHistoryErrorBytes = 256     // of each attempt in the history
	MaxHistory           = 20      // attempts in the history; the oldest go first
)

// MaxOrderKeyBytes is the longest order key that every store takes.
const MaxOrderKeyBytes = 512

// Content is what is kept of a message that is not completed. Slices and maps are
// the caller's; stores do not keep them.
type Content struct {
	State    ContentState
	Codec    string // the name of the codec that payload and metadata went through; "": none
	UUID     string
	Metadata map[string]string
	Payload  []byte
}

// FailureState is where a message stands that has failed before.
type FailureState struct {
	// Version changes with every change of the row. It is the guard of the next
	// change. 0: there is no row.
	Version   int64
	Status    Status
	Placement Placement
	Content   ContentState
	Class     Class // of the last failure
	Attempts  int   // that count towards the budget
	Uncounted int   // that do not

	// Presumed: the last attempt was counted before it began and has not ended in
	// any known way. Its process may have died, or runs it still.
	Presumed bool

	Age   time.Duration // since the first failure of this budget, by the database's clock
	DueIn time.Duration // until the next attempt may begin; zero or less: now
}

// Failure is a failed attempt, and what the message has become by it.
type Failure struct {
	Key         Key
	Fingerprint Fingerprint
	TraceParent TraceParent

	// Version of the row as it was seen; 0: there was none.
	Version int64

	Status    Status        // StatusPending or StatusFailed
	Placement Placement     // PlacementParked needs content in the state ContentKept, here or in the row
	Attempts  int           // from now on
	Uncounted int           // from now on
	DueIn     time.Duration // from now on, by the database's clock; for StatusPending

	// OrderWait is how long beyond its time a message that the broker is to deliver again
	// keeps later ones of its order key waiting: after that it may be gone.
	OrderWait time.Duration

	// Start: the attempt is about to begin, and is counted now so that the end of the
	// process cannot undo it. The next Failure with the returned version replaces
	// the presumption; a later Start confirms it.
	Start bool

	Class Class
	Error string // cut to MaxErrorBytes
	Cause string // see CauseOf

	Topic       string
	Coordinates string
	OrderKey    []byte   // at most MaxOrderKeyBytes; nil: none
	Content     *Content // nil: what the row has is left as it is
}

// Failures records what became of attempts that failed. Every call is one guarded
// change, on another connection than any attempt, and durable when it returns nil.
type Failures interface {
	// Look reads the row of a key without claiming it. The outcome is Claimable,
	// Duplicate, Conflict, Parked, Final or Deferred. It takes one trip, writes
	// nothing and does not see claims in flight. Errors are those of Begin.
	Look(ctx context.Context, k Key, f Fingerprint) (Verdict, error)

	// Record writes f and returns the version of the row from then on. It never
	// touches a row that is completed, failed for good, discarded or changed since f.Version was seen,
	// and never waits for a delivery of the key that is in flight: then the error
	// wraps ErrChanged, nothing was written, and a new claim will tell why. Other
	// errors are those of Begin, and ErrTooLarge.
	Record(ctx context.Context, f Failure) (version int64, err error)

	// KeepContent writes down what is kept of a message that has failed for good or was
	// discarded, with content in the state ContentNone: the broker had it then, and whoever
	// acks it now is the last that has it. c.State says what is kept, or why nothing is. It touches
	// only a row that is as it was seen in that version; otherwise the error wraps ErrChanged
	// and nothing was written. Other errors are those of Record.
	KeepContent(ctx context.Context, k Key, version int64, c Content) error
}

// DueQuery asks for messages of one consumer that are parked and due.
type DueQuery struct {
	Consumer Consumer
	Limit    int           // at most so many; positive
	Reserve  time.Duration // how long they belong to the caller; longer than a run of the handler can take
}

// Retry is a parked message, reserved for the caller, who claims it with its version
// as Claim.Take.
type Retry struct {
	Key         Key
	Fingerprint Fingerprint
	TraceParent TraceParent // of the delivery that failed first
	State       FailureState

	// Suspect: it was reserved before, and neither recorded nor released until the
	// reservation ran out. The process that had it may have died of it. It stays so until
	// an attempt is recorded, however often it is put off or released unbegun.
	Suspect bool

	Topic       string
	Coordinates string
	OrderKey    []byte
	Content     Content

	LastError string // as it was recorded last
	Cause     string // of that

	Err error // what is kept cannot be read; the other fields are as far as they could be
}

// Backlog is how much a consumer has due.
type Backlog struct {
	Consumer Consumer
	Due      int           // bounded by the argument of Backlog
	Oldest   time.Duration // for how long the oldest has been due
}

// Retries hands parked messages to retry workers, of any number of processes.
// Times are compared by the database's clock alone.
type Retries interface {
	// Due reserves due messages, those that have waited longest first. Until the
	// reservation ends nobody else is given them. A message behind an earlier pending
	// one of its order key is not due. Rows that others are changing are passed by.
	Due(ctx context.Context, q DueQuery) ([]Retry, error)

	// Release ends reservations of messages that were not begun; they are due at
	// once. Those that were changed since are left alone.
	Release(ctx context.Context, reserved []Retry) error

	// Backlog returns every consumer that has due messages, whether it is registered
	// here or not, counting at most limit of each.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
}

// Waker is implemented by stores whose database can tell that messages may have
// become due. Workers poll all the same.
type Waker interface {
	// Listen calls wake when messages may have become due, until ctx ends or the
	// connection is lost; it returns why. wake must not block.
	Listen(ctx context.Context, wake func()) error
}
