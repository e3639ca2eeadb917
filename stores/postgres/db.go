package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// pgxDB adapts a pool for package tables.
type pgxDB struct{ pool *pgxpool.Pool }

var _ tables.DB = pgxDB{}

// Spare implements tables.DB.
func (db pgxDB) Spare() bool { return db.pool.Config().MaxConns > 1 }

// sender is a connection or a transaction.
type sender interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Send implements tables.Querier.
func (db pgxDB) Send(ctx context.Context, s tables.Statement) (int64, error) {
	conn, err := acquire(ctx, db.pool)
	if err != nil {
		return 0, err
	}
	defer conn.Release()
	return send(ctx, conn, s)
}

// acquire takes a connection from the pool. Its error says whether the pool had none left.
func acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err == nil {
		return conn, nil
	}
	if stat := pool.Stat(); ctx.Err() != nil && stat.AcquiredConns() == stat.MaxConns() {
		err = sqlstore.NoneFree(int(stat.MaxConns()), err)
	}
	return nil, err
}

func send(ctx context.Context, to sender, s tables.Statement) (int64, error) {
	if s.Read == nil {
		tag, err := to.Exec(ctx, s.Text, s.Args...)
		return tag.RowsAffected(), err
	}
	rows, err := to.Query(ctx, s.Text, s.Args...)
	if err != nil {
		return 0, err
	}
	err = s.Read(rows)
	rows.Close()
	if err == nil {
		err = rows.Err()
	}
	return rows.CommandTag().RowsAffected(), err
}

// Batch implements tables.DB in one round trip.
func (db pgxDB) Batch(ctx context.Context, statements ...tables.Statement) error {
	conn, err := acquire(ctx, db.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	return claimtx.SendBatch(ctx, conn.Conn(), statements...)
}

// InTx implements tables.DB.
func (db pgxDB) InTx(ctx context.Context, f func(tables.Querier) error) error {
	conn, err := acquire(ctx, db.pool)
	if err != nil {
		return err
	}
	defer conn.Release()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return f(sqlstore.SenderFunc(func(ctx context.Context, s tables.Statement) (int64, error) { return send(ctx, tx, s) }))
	})
}
