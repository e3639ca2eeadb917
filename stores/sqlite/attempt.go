package sqlite

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

// attempt holds the writer's slot, and its key in flights, until it ends.
type attempt struct {
	sqltx.Entry

	store   *Store
	flight  flight
	tx      *sql.Tx
	conn    *conn
	outcome sqltx.Outcome
	staged  sqlstore.Staged // sent before COMMIT
}

var (
	_ stores.Attempt = (*attempt)(nil)
	_ stores.Emitter = (*attempt)(nil)
)

type attemptKey struct{}

// Context implements stores.Attempt.
func (a *attempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, a)
}

// Commit implements stores.Attempt. COMMIT runs in this process and is not interrupted: ctx is
// checked first, and bounds the wait for a goroutine that still uses the transaction.
func (a *attempt) Commit(ctx context.Context) error {
	return a.outcome.Commit(func() error { return a.commit(ctx) })
}

// Emit implements stores.Emitter.
func (a *attempt) Emit(outputs []stores.Output) error {
	if err := a.outcome.Open(pkg); err != nil {
		return err
	}
	return a.store.tables.Stage(&a.staged, outputs)
}

// commit commits, or rolls back if there is a reason. After it nothing can be committed, even if a
// goroutine of the handler keeps the connection busy.
func (a *attempt) commit(ctx context.Context) error {
	reason := a.Doomed()
	if reason == nil && ctx.Err() != nil {
		reason = context.Cause(ctx)
	}
	if reason == nil {
		err := a.conn.commit(a.staged)
		if !errors.Is(err, stores.ErrTxBusy) {
			a.end()
			return err
		}
		reason = stores.ErrTxBusy
	}
	if early := a.conn.close(); early != nil {
		reason = fmt.Errorf("%w: %w", early, reason)
	}
	_ = a.rollback(ctx)
	return pkg.NotCommitted(reason)
}

// Rollback implements stores.Attempt.
func (a *attempt) Rollback(ctx context.Context) error {
	return a.outcome.Rollback(pkg, func() error { return a.rollback(ctx) })
}

// rollback waits, until ctx ends, for statements of goroutines that the handler left behind: SQLite
// cannot roll back under them. They were interrupted, but functions of the program that they call
// may take a while.
func (a *attempt) rollback(ctx context.Context) error {
	_ = a.conn.close()
	if !a.conn.inUse() {
		a.end()
		return nil
	}
	return waitFor(ctx, a.end)
}

// waitFor runs end, and waits for it until ctx ends.
func waitFor(ctx context.Context, end func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		end()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", stores.ErrTxBusy, context.Cause(ctx))
	}
}

// end gives everything back. database/sql rolls back an open transaction.
func (a *attempt) end() {
	_ = a.tx.Rollback() // fails if the handler ended it first, which is known by now
	a.store.writer.release()
	a.store.flights.land(a.flight)
}

// TxFromContext returns the transaction that holds the claim, from the context of the handler's
// message. It reports false outside an inbox on a SQLite store.
//
// Use the transaction like any *sql.Tx, with savepoints in SQL if needed. Its Commit and Rollback
// return stores.ErrTxManaged and roll back; the attempt then cannot be committed. SQL that ends it
// also rolls back: later statements return stores.ErrTxEnded, and none of their writes is
// committed. After the handler has returned, its methods return sql.ErrTxDone.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	return sqltx.FromContext[*sql.Tx](ctx, attemptKey{})
}

// Handler adapts a function that takes the transaction to a handler for Router.AddConsumerHandler.
// The handler returns stores.ErrNoTx outside an inbox on a SQLite store, and stores.ErrReentered
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
func (a *attempt) Native() *sql.Tx { return a.tx }
