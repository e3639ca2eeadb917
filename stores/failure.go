package stores

import (
	"context"
	"time"
)

// Class is the kind of a failure. Programs may use words of their own; the inbox gives
// these.
type Class string

const (
	ClassTransient   Class = "transient"   // the handler returned an error; the default
	ClassPermanent   Class = "permanent"   // trying again cannot help
	ClassContention  Class = "contention"  // the handler lost a race of optimistic locking; run again at once
	ClassTimeout     Class = "timeout"     // the handler returned after its deadline
	ClassPanic       Class = "panic"       // the handler panicked or exited its goroutine
	ClassConduct     Class = "conduct"     // the handler did to its transaction what it must not
	ClassOutputs     Class = "outputs"     // the handler published messages that cannot be published, or are not kept
	ClassCrash       Class = "crash"       // the process ended while the handler ran
	ClassInterrupted Class = "interrupted" // the database's doing: a deadlock, a lost connection; not counted
	ClassUnknown     Class = "unknown"     // how the commit ended could not be found out; not counted
	ClassOrder       Class = "order"       // no attempt was made: the message is behind an earlier one of its order key
	ClassUnconfirmed Class = "unconfirmed" // under a lease: the effect may have happened, and another attempt must not be made
	ClassUnreadable  Class = "unreadable"  // the kept content cannot be read back
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

// Content is what is kept of a message that is not completed. Stores keep none of its
// slices and maps.
type Content struct {
	State    ContentState
	Codec    string // the name of the codec that payload and metadata went through; "": none
	UUID     string
	Metadata map[string]string
	Payload  []byte // nil is not empty
	Facts    Facts
}

// Facts are what the broker said of a message, besides where it is: the same on every
// delivery. Stores give them back exactly, the time in UTC.
type Facts struct {
	Key      []byte    // by which its producer orders or partitions; nil, which is not empty: none
	NativeID string    // the broker's or the producer's own id; "": none
	Time     time.Time // when the broker took it; zero: unknown

	// PublishTopic and PublishTo, a destination, are where what its handler returns goes.
	PublishTopic, PublishTo string

	// RanAs is the id of a message in quarantine that may have run under it, or under which it
	// may have been completed before. Released, it keeps the idempotency key of that id; nil:
	// it has one of its own.
	RanAs []byte

	// KeyWasNil and PayloadWasNil tell nil from empty where a codec does not.
	KeyWasNil, PayloadWasNil bool
}

// FailureState is the state of a message that has failed.
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

	// Presumed: the last attempt was counted before it began, and how it ended is not
	// known. Its process may have died or may still run it. With ClassInterrupted others ran
	// beside it, any of which may have ended the process.
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

	// OrderWait is how long after its due time a redelivered message keeps later ones of
	// its order key waiting. Then it counts as lost.
	OrderWait time.Duration

	// Start: the attempt is about to begin, and is counted now so that a crash cannot undo
	// the count. It is presumed until the next Failure with the returned version replaces
	// it, or a later Start confirms it.
	Start bool

	// Holder, with Start, makes the attempt's claim a lease that lives for DueIn; see
	// [LeaseInbox]. At most MaxHolderBytes.
	Holder string
	// Lapsed changes the row only if it is due by the database's clock: it is how a lease is
	// taken over.
	Lapsed bool

	Class Class
	Error string // cut to MaxErrorBytes
	Cause string // see CauseOf

	Topic       string
	Coordinates string
	OrderKey    []byte   // at most MaxOrderKeyBytes; nil: none
	Content     *Content // nil: the row's content stays
}

// Failures records what became of attempts that failed. Every call is one guarded
// change, on another connection than any attempt, and durable when it returns nil. Slices
// and maps stay the caller's.
type Failures interface {
	// Look reads the row of a key without claiming it. The outcome is Claimable,
	// Duplicate, Conflict, Parked, Final or Deferred. It takes one trip, writes
	// nothing and does not see claims in flight. Errors are those of Begin.
	Look(ctx context.Context, k Key, f Fingerprint) (Verdict, error)

	// Record writes f and returns the new version of the row. If the row is completed, failed
	// for good, discarded, or not in f.Version any longer, or a delivery of the key is in
	// flight, the error wraps ErrChanged; a new claim tells which. It never waits for a
	// delivery. Other errors are those of Begin, and ErrTooLarge.
	Record(ctx context.Context, f Failure) (version int64, err error)

	// KeepContent writes c to a row that is final and has ContentNone: the broker had the
	// message until now, and the caller is about to ack it. c.State says what is kept, or why
	// nothing is. If the row is not in that version the error wraps ErrChanged. Other errors
	// are those of Record.
	KeepContent(ctx context.Context, k Key, version int64, c Content) error
}

// DueQuery asks for messages of one consumer that are parked and due.
type DueQuery struct {
	Consumer Consumer
	Limit    int           // of messages returned; positive
	MaxBytes int           // of payloads, metadata and facts returned, or one message; 0: no limit
	Reserve  time.Duration // how long they are reserved, unless Renew makes it longer
}

// Retry is a parked message that is reserved for the caller. It is claimed with
// State.Version as Claim.Take.
type Retry struct {
	Key         Key
	Fingerprint Fingerprint
	TraceParent TraceParent // of the delivery that failed first
	State       FailureState

	// Suspect: an earlier reservation ran out, and the message was neither recorded nor
	// released. Its process may have died of it. It stays suspect until an attempt is
	// recorded, however often it is released.
	Suspect bool

	Topic       string
	Coordinates string
	OrderKey    []byte
	Content     Content

	LastError string // as recorded
	Cause     string // of LastError

	Err error // why the content cannot be read; the other fields are set as far as possible
}

// Backlog is how much a consumer has due.
type Backlog struct {
	Consumer Consumer
	Due      int           // at most the limit of the call
	Oldest   time.Duration // how long the oldest has been due, by the database's clock
}

// Retries hands parked messages to retry workers, of any number of processes. Times are
// compared by the database's clock alone. Errors wrap ErrUnavailable, ErrNotMigrated,
// ErrSchemaNewer or ErrClosed; those of Due also ErrNotRegistered.
type Retries interface {
	// Due reserves due messages and returns them, those that have waited longest first.
	// Until the reservation ends nobody else gets them. A message behind an earlier pending
	// one of its order key is not due. Locked rows are skipped.
	Due(ctx context.Context, q DueQuery) ([]Retry, error)

	// Renew lets reservations end d from now. Rows that changed since, and locked rows, are
	// left alone: a message whose attempt has begun needs no reservation. Versions stay as
	// they are. A worker that renews in time reserves for a short time, so that its messages
	// are soon due for others when it dies.
	Renew(ctx context.Context, reserved []Retry, d time.Duration) error

	// Release ends reservations of messages that were not begun, which are then due at
	// once. Rows that changed since are left alone.
	Release(ctx context.Context, reserved []Retry) error

	// Backlog returns every consumer that has due messages, registered in this process or
	// not. It counts at most limit of each.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
}

// Waker is implemented by stores whose database tells when messages may have become due.
// Workers poll all the same.
type Waker interface {
	// Listen calls wake when messages may have become due. It returns an error when ctx
	// ends or the connection is lost, never nil. wake must not block.
	Listen(ctx context.Context, wake func()) error
}
