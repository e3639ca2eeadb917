package stores

import "errors"

// Errors of [Inbox.Begin], [Registry.Register] and [Quarantine.Quarantine].
var (
	// ErrUnavailable: the store did not answer: it is unreachable, read-only, out of connections
	// or overloaded. Nothing is known about the key and nothing was written. Try again later; it
	// does not count as an attempt.
	ErrUnavailable = errors.New("stores: store unavailable")
	// ErrBusy comes with ErrUnavailable: no connection of the store's own pool became free in
	// time, or no turn to write. The database was not asked.
	ErrBusy = errors.New("stores: store is busy")
	// ErrNotMigrated: millpond's tables are missing, or older than this program.
	ErrNotMigrated = errors.New("stores: the tables are missing or too old: call Migrate, or run millpond migrate up or the SQL of Migrations")
	// ErrSchemaNewer: a newer millpond has migrated the tables, and this program cannot use
	// them.
	ErrSchemaNewer = errors.New("stores: the tables belong to a newer version of millpond")
	// ErrConsumerConflict: the consumer is registered for other topics, so this is
	// probably another service under the same name.
	ErrConsumerConflict = errors.New("stores: consumer name is taken")
	// ErrConsumerCollision: the hash of this consumer's name is the number of another consumer.
	// Give the handler another name.
	ErrConsumerCollision = errors.New("stores: another consumer has the same number")
	// ErrNotRegistered: the consumer was not registered in this process, or its row is gone.
	// Call Register.
	ErrNotRegistered = errors.New("stores: consumer is not registered")
	// ErrInvalidKey: no store accepts this key.
	ErrInvalidKey = errors.New("stores: invalid key")
	// ErrTooLarge: the message is larger than the store can keep. Nothing was stored.
	ErrTooLarge = errors.New("stores: message is too large to be kept")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("stores: store is closed")
)

// Errors of [Failures], [Retries] and [Inspector].
var (
	// ErrChanged: the row changed since it was read, or a delivery of the message is in
	// flight. Nothing was written.
	ErrChanged = errors.New("stores: the row changed since it was read; nothing was written")
	// ErrNotFound: there is no such message.
	ErrNotFound = errors.New("stores: no such message")
	// ErrNotKept: the message cannot be run, because its content is not kept or cannot be
	// restored.
	ErrNotKept = errors.New("stores: the content of the message is not kept, or cannot be restored")
)

// ErrArchive: PurgeQuery.Archive returned an error, so nothing was deleted.
var ErrArchive = errors.New("stores: the archive refused the rows to be purged")

// Errors of [Attempt.Commit]. It returns nil or an error that wraps exactly one of
// ErrNotCommitted and ErrCommitUnknown.
var (
	// ErrNotCommitted: neither the claim nor any effect of this attempt is committed, now or
	// later, except if ErrTxEscaped comes with it.
	ErrNotCommitted = errors.New("stores: not committed")
	// ErrCommitUnknown: the server may or may not have committed. The message must
	// be neither acked nor counted as failed; see [Resolver].
	ErrCommitUnknown = errors.New("stores: commit outcome is unknown")
)

// Why an attempt could not be committed. Each comes wrapped with ErrNotCommitted.
var (
	// ErrTxAborted: a failed statement aborted the transaction, and the handler returned
	// nil.
	ErrTxAborted = errors.New("stores: a failed statement aborted the transaction, and the handler hid its error")
	// ErrTxEnded: the handler ended the transaction that held the claim.
	ErrTxEnded = errors.New("stores: the handler ended the transaction")
	// ErrTxEscaped comes with ErrTxEnded: the handler may have committed part of its
	// effects, and the claim with them. Ask [Escapable].
	ErrTxEscaped = errors.New("stores: the handler went around its transaction and may have committed part of its effects")
	// ErrTxExpired: the transaction was idle beyond its bound, and the server ended it.
	ErrTxExpired = errors.New("stores: the transaction was idle beyond its bound, and the server ended it")
	// ErrTxBusy: the handler returned while a statement, open rows or a goroutine still
	// used its transaction.
	ErrTxBusy = errors.New("stores: the handler returned while its transaction was in use")
	// ErrReentered: the handler was run a second time in one transaction, for example by a
	// Retry middleware inside the inbox.
	ErrReentered = errors.New("stores: the handler was run twice in one transaction: put retries outside the inbox")
	// ErrTxContended: a condition on the handler's writes does not hold, because the item has
	// changed since. The handler runs again at once, as after [ClassContention], and counts in
	// the end.
	ErrTxContended = errors.New("stores: a condition of the handler no longer holds")
	// ErrFailureHidden: a middleware inside the inbox returned nil, but the typed handler had
	// returned an error (wrapped too), had panicked, or still ran. Committing would have kept
	// half of its effects.
	ErrFailureHidden = errors.New("stores: a middleware inside the inbox hid that the handler failed: leave IgnoreErrors, PoisonQueue and Deduplicator out of the inbox, and AckCommandHandlingErrors and AckCommandErrors off")
)

// NotSharedError is an [ErrNotShared] that says what cannot be shared.
type NotSharedError struct{ What string }

func (e *NotSharedError) Error() string { return ErrNotShared.Error() + ": " + e.What }

// Unwrap returns [ErrNotShared].
func (*NotSharedError) Unwrap() error { return ErrNotShared }

// ErrBatchLost: the transaction of a batch cannot be committed; its members run again, each in a
// transaction of its own.
var ErrBatchLost = errors.New("stores: the transaction that the message shared with others is lost")

// Errors that handlers meet.
var (
	// ErrNotShared: the handler sent a statement that would affect the other messages of its
	// shared transaction. It runs again in a transaction of its own, and alone from then on.
	ErrNotShared = errors.New("stores: the handler needs its own transaction, and runs again in one")
	// ErrTxClosed: the attempt is over, or being committed, and accepts no more outputs.
	ErrTxClosed = errors.New("stores: the attempt is over and takes no more outputs")
	// ErrTxManaged: the handler called Commit or Rollback, which belong to millpond, so its
	// attempt fails. A handler rolls back by returning an error.
	ErrTxManaged = errors.New("stores: only millpond commits and rolls back: return nil to commit, an error to roll back")
	// ErrNoLease: the context has no lease: the handler is not in
	// middleware.InboxConfig.LeaseByHandler, or there is no inbox around it.
	ErrNoLease = errors.New("stores: no lease in the context: name the handler in LeaseByHandler of its inbox")
	// ErrNoTx: the context has no attempt of this store: there is no inbox around the handler, or
	// an inbox on another store, which then names it.
	ErrNoTx = errors.New("stores: no transaction of this store in the context: put an inbox on this store around the handler, or use Handler or TxFromContext from the package of the inbox's store")
)
