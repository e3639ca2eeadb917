package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// attempt is one transaction that holds a claim.
type attempt struct {
	sqltx.Entry

	store *Store
	ss    *session
	claim claimed

	staged   sqlstore.Staged // statements before the completion
	outcome  sqltx.Outcome
	failure  error // the first failed statement's, or the commit's
	uncalled error // one of the store's procedures could not be called; the handler did not fail
	escaped  bool  // the claim was certainly committed
	lost     bool  // the claim is gone from the transaction for an unknown reason
}

var (
	_ stores.Attempt       = (*attempt)(nil)
	_ stores.Emitter       = (*attempt)(nil)
	_ stores.Interruptible = (*attempt)(nil)
	_ stores.Escapable     = (*attempt)(nil)
	_ stores.Refusing      = (*attempt)(nil)
)

type attemptKey struct{}

// Context implements stores.Attempt.
func (a *attempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, a)
}

// TxFromContext returns the transaction that holds the claim, from the context of the handler's
// message. It reports false outside an inbox on a MySQL store.
//
// Use the transaction like any *sql.Tx, with savepoints in SQL if needed. On the store's own
// connections its Commit and Rollback return stores.ErrTxManaged and roll back; so does SQL that
// would end it, such as DDL. The attempt then cannot be committed. On the caller's *sql.DB they
// cannot be refused: if the handler committed its transaction early, the message goes to
// quarantine, unless the handler returns nil.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	return sqltx.FromContext[*sql.Tx](ctx, attemptKey{})
}

// Handler adapts a function that takes the transaction to a handler for Router.AddConsumerHandler.
// The handler returns stores.ErrNoTx outside an inbox on a MySQL store, and stores.ErrReentered
// when it runs twice in one attempt.
func Handler(f func(ctx context.Context, tx *sql.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

// Lease makes a handler of two functions: effect runs first, outside the database; write runs in
// the transaction that completes the message, with effect's result. If the completion fails, write
// is repeated while the lease lives; effect is not. Use it for handlers in
// InboxConfig.LeaseByHandler: without a lease it returns stores.ErrNoLease before the effect. With
// an inbox on another store, nothing is completed.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx *sql.Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

// Native implements sqltx.Carrier.
func (a *attempt) Native() *sql.Tx { return a.ss.tx }

// Commit implements stores.Attempt. A second call returns the same.
func (a *attempt) Commit(ctx context.Context) error {
	return a.outcome.Commit(func() error {
		if a.ss.own != nil {
			return a.commitOwn(ctx)
		}
		return a.commitBorrowed(ctx)
	})
}

// Rollback implements stores.Attempt.
func (a *attempt) Rollback(ctx context.Context) error {
	return a.outcome.Rollback(pkg, func() error {
		err, suspect := a.end(ctx)
		if suspect {
			err = errors.Join(a.checkEscape(ctx), err)
		}
		return err
	})
}

// end rolls back and gives the connection back. suspect says that the handler may have ended the
// transaction itself.
func (a *attempt) end(ctx context.Context) (err error, suspect bool) { //nolint:revive // the error is not the result
	if a.ss.own == nil {
		return a.endBorrowed(ctx), true
	}
	t := a.ss.own
	idle := t.gate.Close()
	suspect = t.suspect.Load()
	switch {
	case !idle:
		a.ss.abandon()
		return stores.ErrTxBusy, suspect
	case t.ended.Load():
		a.ss.free()
		return nil, suspect
	}
	if suspect {
		a.lookForClaim(ctx, t.send)
	}
	if _, err := t.send(ctx, "ROLLBACK"); err != nil {
		a.ss.abandon()
		return err, suspect
	}
	t.finished()
	a.ss.free()
	return nil, suspect
}

// refuse ends an attempt that must not commit.
func (a *attempt) refuse(ctx context.Context, reasons ...error) error {
	_, suspect := a.end(ctx)
	if suspect {
		reasons = append(reasons, a.checkEscape(ctx))
	}
	return pkg.NotCommitted(errors.Join(reasons...))
}

func (a *attempt) commitOwn(ctx context.Context) error {
	t := a.ss.own
	idle := t.gate.Close()
	a.failure = t.gate.Failure()
	switch doomed := a.Doomed(); {
	case !idle:
		return a.refuse(ctx, stores.ErrTxBusy)
	case t.managed.Load() || t.ended.Load():
		return a.refuse(ctx, stores.ErrTxEnded, stores.ErrTxManaged, doomed)
	case !t.conn.native.IsValid():
		a.ss.abandon()
		return pkg.NotCommitted(errors.Join(sqltx.Aborted(a.failure), doomed))
	case doomed != nil:
		return a.refuse(ctx, doomed)
	case ctx.Err() != nil:
		return a.refuse(context.WithoutCancel(ctx), ctx.Err())
	}
	if err := a.complete(ctx, t.send); err != nil {
		return a.failed(ctx, err)
	}
	t.finished()
	a.ss.free()
	return nil
}

// errLost: the completion found no claim of this transaction.
var errLost = errors.New("the claim of this transaction is gone")

// complete sends the guarded completion, and COMMIT only after it.
func (a *attempt) complete(ctx context.Context, exec func(context.Context, string) (int64, error)) error {
	t := a.store.texts()
	if own := a.ss.own; own != nil {
		if err := own.complete(ctx, t, &a.claim, a.staged); !errors.Is(err, errNotPrepared) {
			return err
		}
	}
	if text := a.emitComplete(); text != nil {
		_, err := exec(ctx, string(text))
		return err
	}
	riding, err := a.ss.emit(ctx, a.staged, exec)
	if err != nil {
		return err
	}
	if t.maria || t.procedures {
		_, err := exec(ctx, string(t.complete(make([]byte, 0, 512+len(riding)), riding, &a.claim, a.ss.own == nil)))
		return err
	}
	changed, err := exec(ctx, string(t.finish(nil, &a.claim)))
	if err != nil {
		return err
	}
	if changed != 1 {
		return errLost
	}
	_, err = exec(ctx, "COMMIT")
	return err
}

// failed judges an error of the completion or of COMMIT. It takes an error that the server
// answered, or a statement that was not sent, as proof that nothing was committed. The client's
// error about a broken connection proves nothing: the request or the reply may be lost.
func (a *attempt) failed(ctx context.Context, err error) error {
	switch n := number(err); {
	case a.store.cannotCall(ctx, err):
		a.uncalled = unavailable(err)
		return a.refuse(ctx, a.uncalled)
	case n == lockWaitTimeout && a.locks() && a.ss.own != nil && !a.ss.own.suspect.Load(): // the lock of an order key
		a.failure = err
		return a.refuse(ctx, err)
	case n == claimLost, n == noCase, errors.Is(err, errLost), n == lockWaitTimeout, n == lockNotAvailable:
		if a.ss.own != nil && a.innocent() {
			return a.refuse(ctx, sqltx.Aborted(a.failure))
		}
		a.lost = a.ss.own == nil || a.ss.own.suspect.Load()
		return a.refuse(ctx, stores.ErrTxEnded, err)
	case n == disconnectedIdle:
		a.ss.drop()
		return pkg.NotCommitted(fmt.Errorf("%w: %w", stores.ErrTxExpired, err))
	case leavesOpen(err):
	case n != 0:
		a.failure = err
		return a.refuse(ctx, err)
	case errBusy(err):
		return a.refuse(ctx, stores.ErrTxBusy)
	case isUnsent(err):
		a.failure = errors.Join(a.failure, err)
		a.ss.abandon()
		return pkg.NotCommitted(sqltx.Aborted(a.failure))
	}
	a.ss.abandon()
	return pkg.CommitUnknown(err)
}

// leavesOpen reports whether a server's error for the completion leaves open whether it committed:
// some errors come after COMMIT is done.
func leavesOpen(err error) bool {
	switch number(err) {
	case withoutNumber, errorDuringCommit, serverShutdown, queryInterrupted, connectionKilled, statementTimeout:
		return true
	}
	return isUndecided(err)
}

// Interrupted implements stores.Interruptible. It goes by the commit's error, or by the first
// failed statement that no savepoint undid. On a caller's connection it knows only errors that the
// typed handler returned.
func (a *attempt) Interrupted() error {
	failure := a.failure
	switch {
	case a.uncalled != nil:
		return pkg.Interrupted(a.uncalled, func(error) bool { return true })
	case failure != nil:
	case a.ss.own != nil:
		failure = a.ss.own.gate.Failure()
	default:
		if _, said := a.Said(); isDrivers(said) {
			failure = said
		}
	}
	return pkg.Interrupted(failure, interruption)
}
