package stores

import (
	"context"
	"io"
	"time"
)

// Outcome is what a claim found. New outcomes may be added: treat an unknown one
// as "cannot be judged now".
type Outcome uint8

const (
	// Claimed: this delivery runs the handler, in the attempt returned with it.
	Claimed Outcome = iota + 1
	// Duplicate: the message was completed before. Ack.
	Duplicate
	// InFlight: another delivery of the message holds the claim right now. Wait
	// without a connection and ask again.
	InFlight
	// Conflict: the key has a row with another fingerprint, completed or not, so this
	// is another message under a used id. Quarantine, then ack; never run the handler.
	Conflict
	// Parked: the message has failed before, and the store keeps it for the retry
	// worker. Ack.
	Parked
	// Final: the message has failed for good, or was discarded. Ack.
	Final
	// Deferred: the message has failed before, its redelivery is to make the next
	// attempt, and it is too early for that by Verdict.Failure.DueIn. Hold.
	Deferred
	// Behind: an earlier message of the same order key is pending. Park this one, too.
	Behind
	// Claimable is an answer of Look alone: a claim would be tried now. If
	// Verdict.Failure.Version is not 0 the message has failed before.
	Claimable
)

var outcomeNames = [...]string{
	Claimed: "claimed", Duplicate: "duplicate", InFlight: "in_flight", Conflict: "conflict",
	Parked: "parked", Final: "final", Deferred: "deferred", Behind: "behind", Claimable: "claimable",
}

// String returns the outcome as one lower-case word, for labels.
func (o Outcome) String() string {
	return name(outcomeNames[:], uint8(o))
}

// Claim asks that a delivery may run the handler.
type Claim struct {
	Key         Key
	Fingerprint Fingerprint // compared with the row's; zero: never a conflict
	TraceParent TraceParent // kept in the row, so that duplicates can point to it

	// Bound is how long the transaction may stand still, and one statement may take,
	// before the server itself ends it, so that a stopped or partitioned process frees the key. Stores that
	// cannot say so in their Capabilities. Zero: no bound.
	Bound time.Duration

	// Take is the version of the failed row that this attempt takes over, from
	// Record or Due. The claim is won only if the row is still pending in this
	// version, whatever its placement and time; otherwise the row is judged as
	// without Take, but never taken over, and InFlight if it is unchanged. 0: the claim is made by inserting the row, or by taking over one
	// that is pending, PlacementRedelivered and due.
	Take int64

	// OrderKey, if not nil, lets the claim fail with Behind while an earlier message of
	// the consumer with the same order key is pending. With Take, earlier ones are those
	// whose failure has a smaller number.
	OrderKey []byte
}

// Verdict is the answer to a claim.
type Verdict struct {
	Outcome Outcome

	// Of the delivery that did the work, for Duplicate and Conflict.
	Fingerprint Fingerprint
	TraceParent TraceParent
	CompletedAt time.Time // by the database's clock

	// Failure is where the message stands, for Parked, Final and Deferred, and for
	// Claimed and Claimable if it has failed before.
	Failure FailureState

	// FingerprintUnknown: a message with a row whose fingerprints could not be
	// compared (another algorithm or key, or none).
	FingerprintUnknown bool
}

// Inbox decides which delivery runs the handler.
//
// Implementations are safe for concurrent use.
type Inbox interface {
	// Begin decides the claim and, if it is won, starts the attempt. The attempt is
	// non-nil exactly if the outcome is Claimed and err is nil.
	//
	// The claim is the first statement of the transaction, and unique by the
	// primary key; a takeover is one guarded change. An attempt that is rolled back
	// leaves the failed row as it was. Begin never waits for another delivery of the same key: while
	// one runs, in this or any other process, the answer is InFlight, or an error
	// wrapping ErrUnavailable from a store that cannot tell. Nothing is written and
	// no connection is held when it returns anything but Claimed.
	//
	// ctx bounds Begin alone; cancelling it later does not touch the attempt.
	// Errors wrap ErrUnavailable, ErrNotMigrated, ErrNotRegistered, ErrInvalidKey
	// or ErrClosed; any other error is unexpected and to be treated like
	// ErrUnavailable. After an error the key is as it was.
	Begin(ctx context.Context, c Claim) (Attempt, Verdict, error)
}

// Attempt is one run of a handler in one transaction, which holds the claim. It is
// ended by exactly one successful Commit or by Rollback; an attempt never ended
// holds a connection and its key until the bound strikes.
//
// Its methods are called by one goroutine at a time.
type Attempt interface {
	// Context returns parent with the native transaction, for the handler. The value
	// that carries it is the attempt: by that the inbox tells it from the transactions
	// of others.
	Context(parent context.Context) context.Context

	// Commit commits the claim and the handler's effects together. nil means
	// proven: the transaction that committed is the one that holds the claim.
	// Otherwise the error wraps ErrNotCommitted (and, where it applies, ErrTxAborted,
	// ErrTxEnded, ErrTxEscaped, ErrTxExpired, ErrTxBusy, ErrReentered, ErrFailureHidden or
	// ErrTxManaged) or ErrCommitUnknown. In all three cases the attempt is over and its
	// connection given back or closed.
	//
	// Called again it returns the same; after Rollback, ErrNotCommitted.
	//
	// ctx bounds the commit alone. If it ends while the server may be committing,
	// the outcome is unknown.
	Commit(ctx context.Context) error

	// Rollback ends the attempt without a trace. It does nothing after Commit or a
	// first Rollback. An error that wraps ErrTxEscaped means that the transaction had
	// been ended by the handler, which may have committed it: ask [Escapable]. Any
	// other error means that the connection was closed instead, which also ends the
	// transaction, as soon as the server notices.
	Rollback(ctx context.Context) error
}

// Interruptible is implemented by attempts that can tell the database's failures from
// the handler's.
type Interruptible interface {
	// Interrupted returns why the database kept the attempt from succeeding: a lost
	// connection, a restart, a deadlock, a serialization failure. It says nothing
	// about the message, so the attempt is to be made again and not counted. nil if
	// there is no such reason; a failure that the handler has undone by a savepoint is
	// none. It is asked after Commit or Rollback.
	Interrupted() error
}

// Refusing is implemented by attempts that can tell an error for which the values of the
// message are the reason.
type Refusing interface {
	// Refuses reports whether err, which the handler or Commit has returned, is the
	// database's refusal of a value: one that is no number or date, too long, NULL where
	// there must be something. It would be refused each time, so the failure is permanent
	// unless the policy says otherwise. What another message may heal is no such thing: a
	// missing row that is referred to, or one that is there already, a CHECK, a division by
	// zero or a result out of range, which may come from a stored balance.
	Refuses(err error) bool
}

// Escapable is implemented by the attempts of stores that cannot keep a handler from
// committing (ErrTxEscaped).
type Escapable interface {
	// Escaped reports whether this very attempt's claim is committed, not another
	// delivery's of the same key. A store that cannot rule out that effects were
	// committed without the claim commits it now, and reports true. It waits like
	// Resolver.Resolve, and is asked after Commit or Rollback.
	Escaped(ctx context.Context) (committed bool, err error)
}

// Resolver is implemented by stores that can find out what became of an unknown
// commit.
type Resolver interface {
	// Resolve reports whether the key is completed, after waiting, bounded by ctx,
	// until no transaction that could still complete it is running. It uses
	// another connection than the attempt. An error wraps ErrUnavailable and means
	// that the question is still open.
	Resolve(ctx context.Context, k Key) (completed bool, err error)
}

// Registration announces a consumer and the topic it reads.
type Registration struct {
	Consumer Consumer
	Topic    string // as the handler subscribes to it, at most MaxTopicBytes; may be empty if it is not known
	// AcceptTopic adds the topic to a consumer that is known for others only,
	// instead of refusing it: for a handler that has moved.
	AcceptTopic bool
}

// Registry records consumers. Registering is idempotent and safe to do from many
// processes at once.
type Registry interface {
	// Register must succeed once in a process before Begin or Quarantine is called
	// for the consumer, and again after one of them returned ErrNotRegistered: a store
	// whose tables were gone forgets its consumers. It also checks the schema, as Validate does. Errors wrap
	// ErrConsumerConflict (the consumer is registered for other topics),
	// ErrInvalidKey (a name or topic no store accepts), ErrNotMigrated, ErrSchemaNewer,
	// ErrUnavailable or ErrClosed.
	Register(ctx context.Context, r Registration) error
}

// Capabilities says which promises depend on the database behind a store.
type Capabilities struct {
	System string // "postgresql", "sqlite": the OpenTelemetry name of the database system

	// ServerBound: the server ends the transaction of a process that stands still
	// (Claim.Bound). Without it a stopped process holds its key until it goes on
	// or dies.
	ServerBound bool

	// SingleWriter: transactions of different keys run one after another.
	SingleWriter bool

	// CommitUnproven: a handler that ends its transaction in SQL and begins another one
	// goes unnoticed, and its message may be lost or run again. All that the store knows
	// of a commit is what a driver tells that hides whose transaction it was.
	CommitUnproven bool

	// SessionShared: what a handler changes in its session (a setting, a role, a temporary
	// table) may stay for messages of others, of other consumers too, because the store does
	// not see it, or does not own the session. Without it a connection whose session the SQL
	// of a handler may have changed serves no other message.
	SessionShared bool

	Pool Pool
}

// Store is everything an adapter of this module offers.
type Store interface {
	Inbox
	Registry
	Quarantine
	Failures
	Retries
	Inspector
	Migrator
	Capabilities() Capabilities
	// Close frees what the store has opened itself: a connection pool given by the
	// caller stays open. Attempts should have ended before.
	io.Closer
}
