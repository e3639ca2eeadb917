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
	ErrorContains    string  // a part of the last error, compared byte by byte
	Numbers          []int64 // see Message.Number
	ID               []byte  // exactly this message id
	OrderKey         []byte  // exactly this order key
	Reserved         bool    // only reserved messages, see Message.Reserved

	Since, Until time.Time // of the last failure, by the database's clock; zero: unbounded
}

// MessageQuery asks for one page of messages, the latest number first.
type MessageQuery struct {
	Filter
	Before int64 // only smaller numbers: the last number of the previous page; 0: the first page
	Limit  int   // messages in a page; positive
}

// Message is a failed message, as operators see it.
type Message struct {
	Key    Key
	Number int64 // given at the first failure, unique in this store, growing; 0: it never failed
	FailureState
	Fingerprint Fingerprint
	TraceParent TraceParent

	// Reserved: a retry worker has reserved it, or Holder has its lease, until DueAt unless
	// renewed. It may be running or its holder dead.
	Reserved bool
	Holder   string // the last holder of its lease, if it has not recorded the outcome; "": none

	Redrives           int       // retries by operators
	FirstAt, LastAt    time.Time // times of its failures, by the database's clock
	DueAt              time.Time // for pending ones
	CompletedAt        time.Time // for completed ones; of them only Key, Status, Fingerprint and TraceParent are set besides
	Error, Cause       string
	Topic, Coordinates string
	OrderKey           []byte
	UUID, Codec        string
	PayloadBytes       int // size of the kept payload

	// Set by Inspector.Message and Find only.
	Metadata map[string]string
	Payload  []byte
	Facts    Facts
	History  []AttemptRecord // the oldest first
	// Unreadable, if not nil, says why metadata, facts or history are missing.
	Unreadable error
}

// AttemptRecord is one attempt in the history of a message.
type AttemptRecord struct {
	At    time.Time `json:"at"`
	Class Class     `json:"class"`
	Error string    `json:"error,omitempty"`
}

// Cause groups the messages of one consumer that failed for one reason.
type Cause struct {
	Consumer  Consumer
	ID        string // as CauseOf gives it
	Class     Class
	Error     string // the error of one of them, not always the latest
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
	More     bool      // there are more than N, which is the limit of the call
	Oldest   time.Time // the first failure of the oldest, or when it was quarantined
}

// Verb is what an operator decides.
type Verb string

const (
	// VerbRetry gives pending, failed and discarded messages a fresh budget, due now. A message
	// that was retried and not attempted since is skipped. A message whose content is not kept
	// waits for its redelivery, and no longer blocks its order key.
	VerbRetry Verb = "retry"
	// VerbDiscard ends the attempts of pending and failed messages. If the broker still has such
	// a message, it is kept when it arrives (Failures.KeepContent), so that it can be retried.
	VerbDiscard Verb = "discard"
	// VerbResolve completes pending, failed and discarded messages whose effect was achieved in
	// another way: no redelivery runs the handler, and nothing waits for them. The failure is
	// deleted; the audit says who resolved it, and why.
	VerbResolve Verb = "resolve"
	VerbRelease Verb = "release" // run a quarantined message after all, under an id of its own
	VerbReject  Verb = "reject"  // leave a quarantined message unrun for good
	VerbReopen  Verb = "reopen"  // undo a rejection: the message is held again
	// VerbErase erases the content of messages, including their errors, for good. Failed and
	// discarded ones become discarded, pending ones only if Filter.Status names them. No
	// redelivery or retry runs or keeps them. In quarantine it ends every status.
	VerbErase Verb = "erase"
)

// Change is one batch of an operator's decision about failed messages.
type Change struct {
	Verb          Verb // VerbRetry, VerbDiscard, VerbResolve or VerbErase
	Filter        Filter
	Actor, Reason string // kept in the audit; cut to MaxDetailBytes

	// Break includes reserved messages, unless an attempt is in flight. The worker that reserved
	// one can neither run nor renew it any more, and the message stays suspect (Retry.Suspect).
	// In the audit the message was "reserved" before.
	Break bool

	After int64 // only greater numbers: Changed.Next of the previous batch
	UpTo  int64 // only numbers up to this one, without later failures; 0: unbounded
	Limit int   // rows in a batch; positive
}

// Changed is what a batch did.
type Changed struct {
	Changed     int
	Redelivered int   // those of Changed that wait for a redelivery, because their content is not kept
	Busy        int   // skipped, because an attempt is in flight
	Reserved    int   // skipped, because a retry worker has reserved them
	Next        int64 // Change.After of the next batch
	Done        bool  // this was the last batch
}

// QuarantineStatus is the state of a quarantined message.
type QuarantineStatus string

const (
	QuarantineHeld     QuarantineStatus = "held"
	QuarantineReleased QuarantineStatus = "released"
	QuarantineRejected QuarantineStatus = "rejected"
	QuarantineErased   QuarantineStatus = "erased"
)

// QuarantineQuery asks for one page of the quarantine, the latest row first. Fields
// that are set must all match.
type QuarantineQuery struct {
	Service, Handler string
	Reason           Reason
	Status           QuarantineStatus // "": held
	Topic            string
	ID               []byte // exactly this message id

	Since, Until time.Time // when it was last stored, by the database's clock; zero: unbounded

	Before int64 // only smaller RowIDs; 0: from the start
	Limit  int   // positive
}

// Decision is an operator's decision about one quarantined message.
type Decision struct {
	Verb          Verb // VerbRelease, VerbReject, VerbReopen or VerbErase
	RowID         int64
	From          QuarantineStatus // for VerbErase: only if the row still has this status; "": any
	Actor, Reason string           // kept in the audit; cut to MaxDetailBytes
}

// ReleasedID returns the message id under which a released message runs, because its own id may
// belong to another message, or be missing.
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
	Before, After string // status; "reserved" before Change.Break
}

// QuarantineInspector is the part of Inspector for messages in quarantine.
type QuarantineInspector interface {
	// Quarantined returns one page of the quarantine, without payload, metadata and facts.
	Quarantined(ctx context.Context, q QuarantineQuery) ([]QuarantineRow, error)
	// QuarantinedRow returns one row with all its fields. The error wraps ErrNotFound if
	// there is none.
	QuarantinedRow(ctx context.Context, rowID int64) (QuarantineRow, error)
	// Decide carries out a decision. The error wraps ErrNotFound if there is no such row;
	// ErrChanged if the row does not have the status that the verb needs (held for release and
	// reject, rejected for reopen, any but erased for erase); and ErrNotKept if a message to be
	// released cannot be restored by its codec.
	Decide(ctx context.Context, d Decision) error
}

// Inspector is for operators. It reads and changes committed state only, and serves consumers
// that are not registered in this process, too. Limits must be positive.
//
// Changes are guarded: a message in flight is never changed, and two operators never change a
// message twice. Each change writes an audit entry in the same transaction. Errors wrap
// ErrUnavailable, ErrNotMigrated, ErrSchemaNewer or ErrClosed, and those named.
type Inspector interface {
	// Messages returns one page, without payload, metadata, facts and history.
	Messages(ctx context.Context, q MessageQuery) ([]Message, error)
	// Message returns a failed message with all its fields. The error wraps ErrNotFound if
	// there is none.
	Message(ctx context.Context, number int64) (Message, error)
	// Find returns the message of a key, a completed one too, with all its fields. The error
	// wraps ErrNotFound if the key has no row.
	Find(ctx context.Context, k Key) (Message, error)
	// Causes returns at most limit causes, those with most messages first.
	Causes(ctx context.Context, f Filter, limit int) ([]Cause, error)
	// Matching counts the messages that match, at most limit of them, and returns their
	// highest number.
	Matching(ctx context.Context, f Filter, limit int) (n int, highest int64, err error)
	// Counts returns how many messages there are by consumer and status, and in quarantine;
	// completed ones are not counted. It counts at most limit of each.
	Counts(ctx context.Context, limit int) ([]Count, error)
	// Consumers returns all consumers that were ever registered, sorted by name.
	Consumers(ctx context.Context) ([]Consumer, error)
	// Change carries out one batch, in one transaction.
	Change(ctx context.Context, c Change) (Changed, error)

	QuarantineInspector

	// Audit returns at most limit decisions, the latest first, with IDs below before
	// (0: all).
	Audit(ctx context.Context, before int64, limit int) ([]AuditEntry, error)
}
