package stores

import (
	"context"
	"time"
)

// Class is the kind of a failure. Programs may use classes of their own; the inbox uses these.
type Class string

const (
	ClassTransient   Class = "transient"   // the handler returned an error; the default
	ClassPermanent   Class = "permanent"   // another attempt cannot succeed
	ClassContention  Class = "contention"  // the handler lost a race of optimistic locking; run again at once
	ClassTimeout     Class = "timeout"     // the handler returned after its deadline
	ClassPanic       Class = "panic"       // the handler panicked or exited its goroutine
	ClassConduct     Class = "conduct"     // the handler misused its transaction
	ClassOutputs     Class = "outputs"     // the handler published messages that cannot be published or kept
	ClassCrash       Class = "crash"       // the process ended while the handler ran
	ClassInterrupted Class = "interrupted" // the database interrupted it: a deadlock, a lost connection; not counted
	ClassUnknown     Class = "unknown"     // the outcome of the commit is unknown; not counted
	ClassOrder       Class = "order"       // no attempt was made: the message is behind an earlier one of its order key
	ClassUnconfirmed Class = "unconfirmed" // under a lease: the effect may have happened, and no other attempt is allowed
	ClassUnreadable  Class = "unreadable"  // the kept content cannot be read back
)

// Limits of what is kept of errors. Stores cut longer text, and replace what a text column cannot
// hold.
const (
	MaxErrorBytes        = 4 << 10 // of the last error
	MaxHistoryErrorBytes = 256     // of each attempt in the history
	MaxHistory           = 20      // attempts in the history; the oldest go first
)

// MaxOrderKeyBytes is the longest order key that every store takes.
const MaxOrderKeyBytes = 512

// Content is what is kept of a message that is not completed. Stores do not retain its slices and
// maps.
type Content struct {
	State    ContentState
	Codec    string // the name of the codec that payload and metadata went through; "": none
	UUID     string
	Metadata map[string]string
	Payload  []byte // nil is not empty
	Facts    Facts
}

// Facts are what the broker said about a message, except its place: the same on every delivery.
// Stores return them exactly, with the time in UTC.
type Facts struct {
	Key      []byte    // the producer's key for order or partitions; nil, which is not empty: none
	NativeID string    // the broker's or the producer's own id; "": none
	Time     time.Time // when the broker took it; zero: unknown

	// PublishTopic and PublishTo, a destination, say where the handler's returned messages go.
	PublishTopic, PublishTo string

	// RanAs stands for the id of a message in quarantine: released, its idempotency key and the
	// derived ids of its outputs are made of it. It is the id under which its effects may have
	// happened before, or one that is made of what arrived. nil: the id under which it runs.
	RanAs []byte

	// KeyWasNil and PayloadWasNil distinguish nil from empty if a codec does not.
	KeyWasNil, PayloadWasNil bool
}

// FailureState is the state of a message that has failed.
type FailureState struct {
	// Version guards the next change. Each change raises it by one; renewing a reservation or a
	// lease does not. So a caller that got no answer recognizes the row that it has written. After
	// a million changes it may start over. 0: there is no row.
	Version   int64
	Status    Status
	Placement Placement
	Content   ContentState
	Class     Class // of the last failure
	Attempts  int   // attempts that count towards the budget
	Uncounted int   // attempts that do not count

	// Presumed: the last attempt was counted before it began, and its end is not known. Its
	// process may have died or may still run it. With ClassInterrupted other messages ran beside
	// it, any of which may have ended the process.
	Presumed bool

	Age   time.Duration // since the first failure of this budget, by the database's clock
	DueIn time.Duration // until the next attempt may begin; zero or less: now
}

// Failure is a failed attempt, and the new state of its message.
type Failure struct {
	Key         Key
	Fingerprint Fingerprint
	TraceParent TraceParent

	// Version of the row when it was read; 0: there was none.
	Version int64

	Status    Status        // StatusPending or StatusFailed
	Placement Placement     // PlacementParked needs content in the state ContentKept, here or in the row
	Attempts  int           // from now on
	Uncounted int           // from now on
	DueIn     time.Duration // from now on, by the database's clock; for StatusPending

	// OrderWait is how long after its due time a redelivered message blocks later ones of its
	// order key. Then it counts as lost.
	OrderWait time.Duration

	// Start: the attempt is about to begin, and is counted now so that a crash cannot undo the
	// count. It is presumed until the next Failure with the returned version replaces it, or a
	// later Start confirms it.
	Start bool

	// Holder, with Start, makes the attempt's claim a lease for the time DueIn; see [LeaseInbox].
	// At most MaxHolderBytes.
	Holder string
	// Lapsed changes the row only if it is due by the database's clock. It takes over an expired
	// lease.
	Lapsed bool

	Class Class
	Error string // cut to MaxErrorBytes
	Cause string // see CauseOf

	Topic       string
	Coordinates string
	OrderKey    []byte   // at most MaxOrderKeyBytes; nil: none
	Content     *Content // nil: the row's content stays
}

// Failures records failed attempts. Every call but Look is one guarded change, on another
// connection than any attempt, and durable when it returns nil. Slices and maps stay the caller's.
// It is safe for concurrent use.
type Failures interface {
	// Look reads the row of a key without claiming it. The outcome is Claimable, Duplicate,
	// Conflict, Parked, Final or Deferred. It takes one round trip, writes nothing and does not
	// see claims in flight. Errors are those of Begin.
	Look(ctx context.Context, k Key, f Fingerprint) (Verdict, error)

	// Record writes f and returns the new version of the row. The error wraps ErrChanged if the
	// row is completed, failed for good, discarded, or no longer in f.Version, or if a delivery
	// of the key is in flight; a new claim tells which. Record never waits for a delivery. Other
	// errors are those of Begin, and ErrTooLarge.
	Record(ctx context.Context, f Failure) (version int64, err error)

	// KeepContent writes c to a final row with ContentNone: so far the broker had the message,
	// and the caller is about to ack it. c.State says what is kept, or why nothing is. If the row
	// is not in that version the error wraps ErrChanged. Other errors are those of Record.
	KeepContent(ctx context.Context, k Key, version int64, c Content) error
}

// DueQuery asks for messages of one consumer that are parked and due.
type DueQuery struct {
	Consumer Consumer
	Limit    int           // the largest number of messages; positive
	MaxBytes int           // of payloads, metadata and facts; one message is always returned; 0: no limit
	Reserve  time.Duration // how long they are reserved, unless renewed
}

// Retry is a parked message that is reserved for the caller. Its claim has State.Version as
// Claim.Take.
type Retry struct {
	Key         Key
	Fingerprint Fingerprint
	TraceParent TraceParent // of the delivery that failed first
	State       FailureState

	// Suspect: an earlier reservation ran out, and the message was neither recorded nor released,
	// so it may have ended its process. It stays suspect until an attempt is recorded, even if it
	// is released.
	Suspect bool

	Topic       string
	Coordinates string
	OrderKey    []byte
	Content     Content

	LastError string // as recorded
	Cause     string // of LastError

	Err error // why the content cannot be read; the other fields are set as far as possible
}

// Backlog is the due work of a consumer.
type Backlog struct {
	Consumer Consumer
	Due      int           // at most the limit of the call
	Oldest   time.Duration // how long the oldest has been due, by the database's clock
}

// Retries hands parked messages to retry workers of any number of processes. Only the database's
// clock counts. Errors wrap ErrUnavailable, ErrNotMigrated, ErrSchemaNewer or ErrClosed; those of
// Due also ErrNotRegistered.
type Retries interface {
	// Due reserves due messages and returns them, those that have waited longest first. No other
	// worker gets them until the reservation ends. A message behind an earlier pending one of its
	// order key is not due. Locked rows are skipped.
	Due(ctx context.Context, q DueQuery) ([]Retry, error)

	// Renew extends reservations to d from now. It skips locked rows and rows that changed since:
	// a message whose attempt has begun needs no reservation. Versions stay as they are. Short
	// reservations with timely renewals make the messages of a dead worker due soon.
	Renew(ctx context.Context, reserved []Retry, d time.Duration) error

	// Release ends reservations of messages that did not begin. They are due at once. Rows that
	// changed since are skipped.
	Release(ctx context.Context, reserved []Retry) error

	// Backlog returns every consumer that has due messages, registered in this process or
	// not. It counts at most limit of each.
	Backlog(ctx context.Context, limit int) ([]Backlog, error)
}

// Waker is implemented by stores whose database signals that messages may be due. Workers poll as
// well.
type Waker interface {
	// Listen calls wake when messages may have become due. It returns an error when ctx
	// ends or the connection is lost, never nil. wake must not block.
	Listen(ctx context.Context, wake func()) error
}
