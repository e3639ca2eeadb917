package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// attempt is one transaction that holds a claim. The handler uses it through tx.
type attempt struct {
	claimtx.Tx

	conn   *pgxpool.Conn
	tx     managedTx
	member *member // the batch's member, which has the connection; nil: not in a batch
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

// Native implements sqltx.Carrier.
func (a *attempt) Native() pgx.Tx { return &a.tx }

// Commit implements stores.Attempt. A second call returns the same.
func (a *attempt) Commit(ctx context.Context) error { return a.end(ctx, (*claimtx.Tx).Commit) }

// Rollback implements stores.Attempt.
func (a *attempt) Rollback(ctx context.Context) error { return a.end(ctx, (*claimtx.Tx).Rollback) }

// end returns the connection to the pool, which closes it if its session may have changed. If the
// connection is in use, or a tracer panicked, end removes it from the pool and closes its socket:
// nothing else is safe while another goroutine reads from it.
func (a *attempt) end(ctx context.Context, how func(*claimtx.Tx, context.Context) (claimtx.Left, error)) (err error) {
	left := claimtx.InUse
	defer func() {
		switch left {
		case claimtx.Already:
		case claimtx.Usable:
			a.conn.Release()
		case claimtx.InUse:
			_ = a.conn.Hijack().PgConn().Conn().Close()
		}
	}()
	left, err = how(&a.Tx, ctx)
	return err
}
