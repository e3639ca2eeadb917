package stores

import (
	"context"
	"io"
	"time"
)

// Outcome is the result of a claim. New outcomes may be added: treat an unknown one as "cannot be
// decided now".
type Outcome uint8

const (
	// Claimed: this delivery runs the handler, in the attempt returned with it.
	Claimed Outcome = iota + 1
	// Duplicate: the message was completed before. Ack.
	Duplicate
	// InFlight: another delivery of the message holds the claim. Hold, without a
	// connection, and ask again.
	InFlight
	// Conflict: the key has a row with another fingerprint, completed or not, so this
	// is another message under a used id. Quarantine, then ack; never run the handler.
	Conflict
	// Parked: the message has failed before, and the store keeps it for the retry
	// worker. Ack.
	Parked
	// Final: the message has failed for good, or was discarded. Ack.
	Final
	// Deferred: the message has failed before, and this redelivery makes its next attempt,
	// which is due in Verdict.Failure.DueIn. Hold.
	Deferred
	// Behind: an earlier message of the same order key is pending. Park this one, too.
	Behind
	// Claimable: nothing prevents a claim. Only Look returns it. If Verdict.Failure.Version is
	// not 0 the message has failed before.
	Claimable
	// Stale: there is no row, and the broker took the message before the time up to which
	// the consumer's rows were purged, so nobody knows whether it was completed. Quarantine,
	// then ack; never run the handler.
	Stale
)

var outcomeNames = [...]string{
	Claimed: "claimed", Duplicate: "duplicate", InFlight: "in_flight", Conflict: "conflict",
	Parked: "parked", Final: "final", Deferred: "deferred", Behind: "behind", Claimable: "claimable", Stale: "stale",
}

// String returns the outcome as one lower-case word, for labels.
func (o Outcome) String() string {
	return name(outcomeNames[:], uint8(o))
}

// Claim asks whether a delivery may run the handler. Stores do not retain its slices.
type Claim struct {
	Key         Key
	Fingerprint Fingerprint // compared with the row's; zero: never a conflict
	TraceParent TraceParent // kept in the row, so that duplicates can point to it

	// Bound is how long the transaction may be idle, and one statement may take. Then the server
	// ends the transaction, so that a stopped or partitioned process frees the key. Stores
	// without Capabilities.ServerBound cannot. Zero: no bound.
	Bound time.Duration

	// Take is the version of the pending row that this attempt takes over, from Record or
	// Due. The claim is won only if the row is still pending in this version, whatever its
	// placement and time. Otherwise the outcome is that of a claim without Take, but the row
	// is never taken over; it is InFlight if the row is unchanged. 0: the claim inserts the
	// row, or takes over one that is pending, PlacementRedelivered and due.
	Take int64

	// OrderKey, if not nil, makes the outcome Behind while an earlier message of the
	// consumer with the same order key is pending. With Take, earlier messages are those
	// whose failure has a smaller number.
	OrderKey []byte

	// Time is when the broker took the message, by its own clock; zero: unknown. A message
	// without a row is Stale if Time is before the consumer's Watermark.PurgedThrough.
	Time time.Time
}

// Verdict is the answer to a claim.
type Verdict struct {
	Outcome Outcome

	// About the delivery that completed the message, for Duplicate and Conflict.
	Fingerprint Fingerprint
	TraceParent TraceParent
	CompletedAt time.Time // by the database's clock

	PurgedThrough time.Time // for Stale

	// Failure is set for Parked, Final and Deferred, and for Claimed and Claimable if the
	// message has failed before.
	Failure FailureState

	// Server identifies the server that answered, and its state. It changes after a failover,
	// after a restart, and when the server was restored to an earlier state. 0: unknown, or the
	// store has no server.
	Server uint64

	// FingerprintUnknown: the row's fingerprint and the claim's could not be compared
	// (another algorithm or key, or none).
	FingerprintUnknown bool
}

// Inbox decides which delivery runs the handler.
//
// Implementations are safe for concurrent use.
type Inbox interface {
	// Begin decides the claim and, if it is won, starts the attempt. The attempt is non-nil
	// exactly if the outcome is Claimed and err is nil. With any other outcome nothing is written
	// and no connection is held.
	//
	// The claim is the first statement of the transaction, and unique by the primary key; a
	// takeover is one guarded change. A rollback leaves the failed row as it was. Begin never
	// waits for another delivery of the same key: while one is in flight, in any process, the
	// outcome is InFlight, or the error wraps ErrUnavailable if the store cannot tell.
	//
	// ctx bounds Begin alone; canceling it later does not touch the attempt. Errors wrap
	// ErrUnavailable, ErrNotMigrated, ErrNotRegistered, ErrInvalidKey or ErrClosed; treat any
	// other error as ErrUnavailable. After an error the key is as it was.
	Begin(ctx context.Context, c Claim) (Attempt, Verdict, error)
}

// Attempt is one run of a handler in one transaction, which holds the claim. Commit or
// Rollback ends it; an attempt that is never ended holds a connection and its key until
// Claim.Bound has passed.
//
// Its methods, those of optional interfaces included, are called by one goroutine at a
// time.
type Attempt interface {
	// Context returns parent with the native transaction, for the handler. The context's value is
	// the attempt itself, which distinguishes it from other transactions.
	Context(parent context.Context) context.Context

	// Commit commits the claim and the handler's effects together. nil is proof: the transaction
	// that committed is the one that holds the claim. Otherwise the error wraps ErrNotCommitted
	// (and, where it applies, ErrTxAborted, ErrTxEnded, ErrTxEscaped, ErrTxExpired, ErrTxBusy,
	// ErrReentered, ErrFailureHidden or ErrTxManaged) or ErrCommitUnknown. In each case the
	// attempt is over and its connection given back or closed.
	//
	// A second call returns the same; after Rollback it returns ErrNotCommitted.
	//
	// ctx bounds the commit alone. If it ends while the server may be committing, the outcome is
	// unknown.
	Commit(ctx context.Context) error

	// Rollback ends the attempt and leaves no trace of it. After Commit or a first
	// Rollback it does nothing. An error that wraps ErrTxEscaped means that the handler
	// ended the transaction and may have committed it: ask [Escapable]. After any other
	// error the connection is closed, and the transaction ends when the server notices.
	Rollback(ctx context.Context) error
}

// Emitter is implemented by attempts that can write outputs with their commit.
type Emitter interface {
	// Emit adds outputs to be written by Commit, as the last statements before the transaction
	// ends. It sends nothing itself. It may be called several times; the outputs keep their
	// order, and must not be changed before the attempt is over. They are written if and only if
	// Commit commits. Commit draws their numbers after it has the locks of their order keys, and
	// may wait for other transactions for these.
	//
	// If one output is refused, none of the call is added, and the attempt is as it was. Errors
	// wrap ErrInvalidOutput, ErrTooLarge, ErrUnordered, or, once the attempt is over,
	// ErrTxClosed. If the handler caused ErrTxClosed, Commit says why.
	Emit(outputs []Output) error
}

// Interruptible is implemented by attempts that can tell the database's failures from
// the handler's.
type Interruptible interface {
	// Interrupted returns why the database interrupted the attempt: a lost connection, a restart,
	// a deadlock, a serialization failure. Such an attempt is made again and not counted. It
	// returns nil if there was no interruption, or the handler undid it by a savepoint. It is
	// called after Commit or Rollback.
	Interrupted() error
}

// Refusing is implemented by attempts that can tell whether the database refused a value
// of the message.
type Refusing interface {
	// Refuses reports whether err, returned by the handler or by Commit, is the database's
	// refusal of a value: not a number or date, too long, or NULL where that is not allowed. The
	// value would be refused each time, so the failure is permanent unless the policy says
	// otherwise. It reports false for errors that another message may fix: a missing or an
	// existing row, a CHECK, a division by zero, a result out of range.
	Refuses(err error) bool
}

// Escapable is implemented by the attempts of stores that cannot keep a handler from
// committing (ErrTxEscaped).
type Escapable interface {
	// Escaped reports whether the claim of this attempt, and not of another delivery, is
	// committed. A store that cannot rule out that effects were committed without the claim
	// commits the claim now and reports true. It waits as Resolver.Resolve does, and is called
	// after Commit or Rollback. After an error call it again.
	Escaped(ctx context.Context) (committed bool, err error)
}

// Resolver is implemented by stores that can find out the outcome of an unknown commit
// (ErrCommitUnknown). It is safe for concurrent use.
type Resolver interface {
	// Resolve reports whether the key is completed. It first waits, bounded by ctx, until no
	// transaction that could complete the key is running, or prevents such a commit. It uses
	// another connection than the attempt. If the error wraps ErrUnavailable, call it again.
	Resolve(ctx context.Context, k Key) (completed bool, err error)
}

// Registration announces a consumer and the topic it reads.
type Registration struct {
	Consumer Consumer
	Topic    string // the handler's subscription, at most MaxTopicBytes; empty if unknown
	// AcceptTopic adds the topic to a consumer that is registered for other topics only, instead
	// of refusing it. It is for a handler that has moved to another topic.
	AcceptTopic bool
}

// Registry records consumers. Registering is idempotent, and safe from many goroutines and
// processes at once. A consumer's number is derived from its name, so that its rows stay its own
// even if a failover loses the registration.
type Registry interface {
	// Register must succeed once in a process before other calls for the consumer, and again
	// after one of them returned ErrNotRegistered: a store whose tables were gone forgets its
	// consumers. It also checks the schema, like Validate. Errors wrap ErrConsumerConflict (the
	// consumer is registered for other topics), ErrConsumerCollision, ErrInvalidKey (no store
	// accepts the name or topic), ErrNotMigrated, ErrSchemaNewer, ErrUnavailable or ErrClosed.
	Register(ctx context.Context, r Registration) error
}

// Capabilities says which promises depend on the database behind a store.
type Capabilities struct {
	System string // "postgresql", "sqlite": the OpenTelemetry name of the database system

	// ServerBound: the server ends the transaction of a paused process (Claim.Bound). Otherwise a
	// paused process holds its key until it goes on or dies.
	ServerBound bool

	// SingleWriter: transactions of different keys run one after another.
	SingleWriter bool

	// CommitUnproven: a handler that ends its transaction in SQL and begins another one goes
	// unnoticed, and its message may be lost or run again. The driver does not tell which
	// transaction a commit has ended.
	CommitUnproven bool

	// SessionShared: a handler's changes to its session (a setting, a role, a temporary table)
	// may affect other messages, those of other consumers included, because the store does not
	// see the change or does not own the session. Otherwise a connection whose session a handler
	// may have changed serves no other message.
	SessionShared bool

	// OutputsUnordered: outputs cannot have order keys, because the database does not number
	// rows in the order of commits. It is known once a consumer is registered.
	OutputsUnordered bool

	// StaleUnseen: deliveries are not compared with the purge's watermark, so that only the
	// retention window keeps purged messages from running again. It is known once a consumer is
	// registered.
	StaleUnseen bool

	// ClaimsShared: deliveries of one message at the same moment may all be claimed, in different
	// processes. One of them commits, and the others write nothing. Within a process, and under a
	// lease, claims are exclusive.
	ClaimsShared bool

	// Unordered: order keys are refused, by Begin with ErrUnordered.
	Unordered bool

	// ChangesSplit: an operator's batch changes one message at a time, and numbers grow only
	// within a process.
	ChangesSplit bool

	Pool Pool
}

// Store is everything that an adapter of this module offers. It is safe for concurrent use. Its
// results, slices and maps included, are the caller's.
type Store interface {
	Inbox
	Registry
	Quarantine
	Failures
	Retries
	Inspector
	Migrator
	// Capabilities does no I/O and may be called at any time.
	Capabilities() Capabilities
	// Close closes what the store has opened itself; a pool given by the caller stays open. End
	// all attempts before.
	io.Closer
}
