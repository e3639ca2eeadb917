package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Begin implements stores.Inbox. It takes one round trip if the claim is won, a second one to find
// out why not, and a third if the claim can be won after all.
func (s *Store) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	consumer, err := s.tables.Known(c.Key)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	answered := false
	defer func() {
		if !answered { // a tracer panicked
			_ = conn.Hijack().PgConn().Conn().Close()
		}
	}()
	won, verdict, err := claimtx.Claim(ctx, conn.Conn(), s.tables, consumer, &c)
	if err != nil {
		claimtx.Abandon(ctx, conn.Conn())
	}
	answered = true
	switch {
	case err != nil:
		conn.Release()
		return nil, stores.Verdict{}, s.tables.Explain(err)
	case won.Tx == nil:
		conn.Release()
		return nil, verdict, nil
	}
	a := &attempt{conn: conn}
	a.Init(s.tables, conn.Conn(), consumer, c.Key.ID, won.At)
	a.tx = managedTx{attempt: a, tx: won.Tx}
	return a, verdict, nil
}

// acquire takes a connection from the pool.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := acquire(ctx, s.pool)
	if err != nil {
		return nil, tables.Unavailable(err)
	}
	return conn, nil
}
