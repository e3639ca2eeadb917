package sqldb

import (
	"context"
	"database/sql"
	"sync"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// attempt is a transaction with a claim, on a connection of our connector. It is ended on that
// connection, past database/sql, whose Commit has no context.
type attempt struct {
	claimtx.Tx

	begun  beginning // the context that database/sql holds
	conn   *conn
	tx     *sql.Tx
	ending sync.Mutex // while held, the connection is not given back
}

var (
	_ stores.Attempt       = (*attempt)(nil)
	_ stores.Emitter       = (*attempt)(nil)
	_ stores.Interruptible = (*attempt)(nil)
	_ stores.Escapable     = (*attempt)(nil)
	_ stores.Refusing      = (*attempt)(nil)
)

// Context implements stores.Attempt.
func (a *attempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, a)
}

// Native implements sqltx.Carrier.
func (a *attempt) Native() *sql.Tx { return a.tx }

// Emit implements stores.Emitter. The lock is needed for a handler's goroutine that ends the
// transaction.
func (a *attempt) Emit(outputs []stores.Output) error {
	a.ending.Lock()
	defer a.ending.Unlock()
	return a.Tx.Emit(outputs)
}

// Commit implements stores.Attempt. A second call returns the same.
func (a *attempt) Commit(ctx context.Context) error { return a.end(ctx, (*claimtx.Tx).Commit) }

// Rollback implements stores.Attempt.
func (a *attempt) Rollback(ctx context.Context) error { return a.end(ctx, (*claimtx.Tx).Rollback) }

func (a *attempt) end(ctx context.Context, how func(*claimtx.Tx, context.Context) (claimtx.Left, error)) (err error) {
	left := claimtx.InUse // unless a tracer panics
	defer func() {
		a.ending.Unlock()
		if left == claimtx.InUse {
			a.cut()
		}
		_ = a.tx.Rollback() // tells database/sql; nothing is sent
	}()
	a.ending.Lock()
	left, err = how(&a.Tx, ctx)
	return err
}

// cut closes the socket: nothing else is safe while another goroutine reads from it.
func (a *attempt) cut() { _ = a.conn.Conn().PgConn().Conn().Close() }
