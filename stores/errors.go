package stores

import "errors"

// Errors of [Inbox.Begin], [Registry.Register] and [Quarantine.Quarantine].
var (
	// ErrUnavailable: the store could not be asked, or could not decide: it is
	// unreachable, read-only, out of connections or overloaded. Nothing is known
	// about the key and nothing was written. Try again later; it is no attempt.
	ErrUnavailable = errors.New("stores: store unavailable")
	// ErrBusy comes with ErrUnavailable: no connection of the store's own pool, or no turn
	// to write, became free in time. Nothing was asked, and nothing suggests that the
	// server is another one than before.
	ErrBusy = errors.New("stores: store is busy")
	// ErrNotMigrated: millpond's tables are missing or older than this program.
	ErrNotMigrated = errors.New("stores: the tables are missing or too old: call Migrate, or run the SQL of Migrations")
	// ErrSchemaNewer: the tables were migrated by a newer millpond that this
	// program is not compatible with.
	ErrSchemaNewer = errors.New("stores: the tables belong to a newer version of millpond")
	// ErrConsumerConflict: the consumer is registered for other topics, so this is
	// probably another service under the same name.
	ErrConsumerConflict = errors.New("stores: consumer name is taken")
	// ErrNotRegistered: Begin or Quarantine was called for a consumer before Register.
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
	// ErrChanged: what was to be changed is not any more as it was seen. Nothing was
	// written; look again.
	ErrChanged = errors.New("stores: the message has changed meanwhile")
	// ErrNotFound: there is no such message.
	ErrNotFound = errors.New("stores: no such message")
	// ErrNotKept: the message cannot be run from what is kept of it.
	ErrNotKept = errors.New("stores: the message itself is not kept, or cannot be restored")
)

// Errors of [Attempt.Commit]. It returns nil or an error that wraps exactly one of
// ErrNotCommitted and ErrCommitUnknown.
var (
	// ErrNotCommitted: proven that neither the claim nor any effect of this
	// attempt was or will be committed by it, except what ErrTxEscaped describes.
	ErrNotCommitted = errors.New("stores: not committed")
	// ErrCommitUnknown: the server may or may not have committed. The message must
	// be neither acked nor counted as failed; see [Resolver].
	ErrCommitUnknown = errors.New("stores: commit outcome is unknown")
)

// Why an attempt could not be committed. Each comes wrapped with ErrNotCommitted.
var (
	// ErrTxAborted: a statement failed, which aborted the transaction, and the
	// handler returned no error.
	ErrTxAborted = errors.New("stores: the transaction is aborted: a statement failed and the handler hid its error")
	// ErrTxEnded: the transaction that held the claim was ended inside the handler.
	ErrTxEnded = errors.New("stores: the handler ended the transaction, which belongs to millpond")
	// ErrTxEscaped comes with ErrTxEnded from a store that could not keep the handler
	// from committing: part of its effects may be committed, and the claim with them.
	// Ask [Escapable].
	ErrTxEscaped = errors.New("stores: the handler went around its transaction and may have committed part of its effects")
	// ErrTxExpired: the server ended the transaction because it stood still beyond its
	// bound.
	ErrTxExpired = errors.New("stores: the server ended the transaction, which stood still beyond its bound")
	// ErrTxBusy: the handler returned while a statement, or rows not closed, still
	// used its transaction, or a goroutine of it did.
	ErrTxBusy = errors.New("stores: the handler returned while its transaction was in use")
	// ErrReentered: a second handler run was started in one transaction, for
	// example by a Retry middleware inside the inbox.
	ErrReentered = errors.New("stores: the handler was run twice in one transaction: put retries outside the inbox")
	// ErrFailureHidden: a middleware inside the inbox returned nil although the typed
	// handler had returned an error, which comes with it, had panicked, or still ran. What
	// it wrote so far would have been committed as all there is.
	ErrFailureHidden = errors.New("stores: a middleware inside the inbox has hidden that the handler failed: leave IgnoreErrors, PoisonQueue and Deduplicator out of the inbox, and AckCommandHandlingErrors and AckCommandErrors off")
)

// Errors that handlers meet.
var (
	// ErrTxManaged: Commit and Rollback of the transaction belong to millpond. A
	// handler rolls back by returning an error. Calling either dooms the attempt.
	ErrTxManaged = errors.New("stores: the transaction is committed and rolled back by millpond, not by the handler")
	// ErrNoTx: a typed handler ran without an attempt of its store in the context:
	// there is no inbox around it, or one on another store.
	// The inbox adds which store it is on.
	ErrNoTx = errors.New("stores: no transaction of this store in the context: put an inbox on this store around the handler, or use Handler or TxFromContext from the package of the inbox's store")
)
