package stores

import (
	"context"
	"strconv"
	"time"
)

// Filter selects failed messages. The zero value selects all that are pending or
// failed; fields that are set must all match.
type Filter struct {
	Service, Handler string
	Status           []Status // empty: pending and failed
	Class            Class
	Cause            string // as CauseOf gives it
	Topic            string
	ErrorContains    string  // in the last error, byte by byte
	Numbers          []int64 // see Message.Number
	ID               []byte  // exactly this message id

	Since, Until time.Time // of the last failure, by the database's clock; zero: unbounded
}

// MessageQuery asks for one page of messages, the latest number first.
type MessageQuery struct {
	Filter
	Before int64 // only smaller numbers: the last one of the page before; 0: from the start
	Limit  int   // positive
}

// Message is a message that has failed, as people see it.
type Message struct {
	Key    Key
	Number int64 // short, unique in this store, growing with the first failure; 0 if it never failed
	FailureState
	Fingerprint Fingerprint
	TraceParent TraceParent

	Redrives           int       // how often an operator had it tried again
	FirstAt, LastAt    time.Time // of its failures, by the database's clock
	DueAt              time.Time // for pending ones
	CompletedAt        time.Time // for completed ones, of which nothing else is known
	Error, Cause       string
	Topic, Coordinates string
	OrderKey           []byte
	UUID, Codec        string
	PayloadBytes       int // of what is kept

	// Read by Message alone.
	Metadata map[string]string
	Payload  []byte
	History  []AttemptRecord // the oldest first
	// Unreadable, if not nil, says why metadata or history are missing.
	Unreadable error
}

// AttemptRecord is one attempt in the history of a message.
type AttemptRecord struct {
	At    time.Time `json:"at"`
	Class Class     `json:"class"`
	Error string    `json:"error,omitempty"`
}

// Cause is what failed for one reason.
type Cause struct {
	Consumer  Consumer
	ID        string // as CauseOf gives it
	Class     Class
	Error     string // of one of them, the latest if that is cheap to find
	Pending   int
	Failed    int
	Discarded int // 0 unless the filter asks for them

	FirstAt, LastAt time.Time
}

// Count is how many messages a consumer has in one state.
type Count struct {
	Consumer Consumer
	Status   string // of a message, or "quarantined"
	N        int
	More     bool      // N is the bound, there are more
	Oldest   time.Time // the first failure of the oldest, or when it was quarantined
}

// Verb is what an operator decides.
type Verb string

const (
	// VerbRetry: try again, with a fresh budget: pending, failed and discarded messages. One
	// that was retried, and that nothing has happened to since, is left alone. One whose
	// content is not kept waits for the broker, and no longer keeps its order.
	VerbRetry Verb = "retry"
	// VerbDiscard: never try again: pending and failed messages. One that the broker is to
	// deliver again is kept when it comes (Failures.KeepContent), so that it can be retried.
	VerbDiscard Verb = "discard"
	VerbRelease Verb = "release" // run a quarantined message after all, under an id of its own
	VerbReject  Verb = "reject"  // leave a quarantined message unrun for good
	VerbReopen  Verb = "reopen"  // take a rejection back: the message is held again, and nothing is decided
)

// Change is one batch of an operator's decision on failed messages.
type Change struct {
	Verb          Verb // VerbRetry or VerbDiscard
	Filter        Filter
	Actor, Reason string // kept in the audit; cut to MaxDetailBytes

	After int64 // only greater numbers: Changed.Next of the batch before
	UpTo  int64 // only numbers up to this, so that what fails meanwhile is left out; 0: unbounded
	Limit int   // rows a batch; positive
}

// Changed is what a batch did.
type Changed struct {
	Changed     int
	Redelivered int   // of Changed: content is not kept, so they wait for the broker to deliver them again
	Busy        int   // left alone: an attempt of them runs just now
	Next        int64 // for the next batch
	Done        bool  // there is no next batch
}

// QuarantineStatus says what was decided about a quarantined message.
type QuarantineStatus string

const (
	QuarantineHeld     QuarantineStatus = "held"
	QuarantineReleased QuarantineStatus = "released"
	QuarantineRejected QuarantineStatus = "rejected"
)

// QuarantineQuery asks for one page of the quarantine, the latest row first. Fields
// that are set must all match.
type QuarantineQuery struct {
	Service, Handler string
	Reason           Reason
	Status           QuarantineStatus // "": held
	Before           int64            // only smaller RowIDs; 0: from the start
	Limit            int              // positive
}

// Decision is an operator's, about one quarantined message.
type Decision struct {
	Verb          Verb // VerbRelease, VerbReject or VerbReopen
	RowID         int64
	Actor, Reason string // kept in the audit; cut to MaxDetailBytes
}

// ReleasedID is the message id under which a released message runs. The id it came
// with may belong to another message, or there is none.
func ReleasedID(rowID int64) []byte { return strconv.AppendInt([]byte("x:quarantine/"), rowID, 10) }

// AuditEntry is one decision that was carried out.
type AuditEntry struct {
	ID            int64
	At            time.Time
	Verb          Verb
	Actor, Reason string
	Consumer      Consumer
	MessageID     []byte // nil for a quarantined message without one
	Number        int64  // of the message, or the RowID of the quarantine
	Before, After string // status
}

// QuarantineInspector is the part of Inspector for messages in quarantine.
type QuarantineInspector interface {
	// Quarantined returns one page of the quarantine, without payload and metadata.
	Quarantined(ctx context.Context, q QuarantineQuery) ([]QuarantineRow, error)
	// QuarantinedRow returns one row whole. ErrNotFound if there is none.
	QuarantinedRow(ctx context.Context, rowID int64) (QuarantineRow, error)
	// Decide carries out a decision. ErrNotFound; ErrChanged if its status is none
	// that the verb leaves: release and reject are of held messages, reopen of rejected ones;
	// ErrNotKept if it is to be released and its codec cannot restore it.
	Decide(ctx context.Context, d Decision) error
}

// Inspector is what operators need. It reads and changes committed state only, and
// works for consumers that are not registered in this process.
//
// Changes are guarded: a message that a delivery or a retry worker has in hand is
// never changed, and two operators never change one twice. Each changed row leaves an
// audit entry in the same transaction. Errors wrap ErrUnavailable, ErrNotMigrated,
// ErrSchemaNewer or ErrClosed, besides those named.
type Inspector interface {
	// Messages returns one page, without payload, metadata and history.
	Messages(ctx context.Context, q MessageQuery) ([]Message, error)
	// Message returns a failed message whole. ErrNotFound if there is none.
	Message(ctx context.Context, number int64) (Message, error)
	// Find returns the message of a key whole, also a completed one. ErrNotFound if it
	// has never been completed nor failed.
	Find(ctx context.Context, k Key) (Message, error)
	// Causes returns what failed, by reason, the largest causes first.
	Causes(ctx context.Context, f Filter, limit int) ([]Cause, error)
	// Matching counts the messages that match, at most limit of them.
	Matching(ctx context.Context, f Filter, limit int) (n int, highest int64, err error)
	// Counts returns how many messages there are by consumer and status, completed ones
	// excepted, and in quarantine, counting at most limit of each.
	Counts(ctx context.Context, limit int) ([]Count, error)
	// Consumers returns the registered consumers, by their names: also those of which
	// nothing has failed. There is one for each handler there ever was.
	Consumers(ctx context.Context) ([]Consumer, error)
	// Change carries out one batch, in one transaction.
	Change(ctx context.Context, c Change) (Changed, error)

	QuarantineInspector

	// Audit returns decisions, the latest first, with IDs below before (0: all).
	Audit(ctx context.Context, before int64, limit int) ([]AuditEntry, error)
}
