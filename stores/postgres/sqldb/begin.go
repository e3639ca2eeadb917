package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// beginning is the context of a BeginTx that makes the driver begin with a claim. Until the claim
// is won it ends with Begin's context, and afterwards never. database/sql asks for Done once it has
// the transaction, in order to roll it back. This type keeps the two apart without a context, a
// callback and their locks for each message.
type beginning struct {
	context.Context //nolint:containedctx // this is a context

	tables   *tables.Tables
	consumer int64
	claim    *stores.Claim
	attempt  *attempt
	won      atomic.Bool // atomic, because connecting may leave goroutines that ask

	verdict stores.Verdict // set unless BeginTx failed for another reason than errNotWon
}

// Done implements context.Context.
func (b *beginning) Done() <-chan struct{} {
	if b.won.Load() {
		return nil
	}
	return b.Context.Done()
}

var errNotWon = errors.New("sqldb: the claim was not won")

// begin makes the driver begin with the claim.
func (s *Store) begin(ctx context.Context, consumer int64, c *stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a := &attempt{}
	b := &a.begun
	b.Context, b.tables, b.consumer, b.claim, b.attempt = ctx, s.tables, consumer, c, a
	tx, err := s.db.BeginTx(b, nil)
	switch {
	case err == nil:
		a.tx = tx
		return a, b.verdict, nil
	case errors.Is(err, errNotWon):
		return nil, b.verdict, nil
	case ctx.Err() != nil:
		return nil, stores.Verdict{}, sqlstore.Exhausted(ctx, s.db, err)
	}
	return nil, stores.Verdict{}, err
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if b, ok := ctx.(*batchBeginning); ok {
		return c.beginBatch(b)
	}
	b, ok := ctx.(*beginning)
	if !ok {
		return c.stdConn.BeginTx(ctx, opts)
	}
	pgxConn := c.Conn()
	if pgxConn.IsClosed() {
		return nil, driver.ErrBadConn
	}
	won, verdict, err := claimtx.Claim(b.Context, pgxConn, b.tables, b.consumer, b.claim)
	switch {
	case err != nil && pgconn.SafeToRetry(err):
		return nil, driver.ErrBadConn // database/sql then uses another connection
	case err != nil:
		claimtx.Abandon(b.Context, pgxConn)
		return nil, err
	}
	b.verdict = verdict
	if won.Tx == nil {
		return nil, errNotWon
	}
	b.won.Store(true)
	a := b.attempt
	a.Init(b.tables, pgxConn, b.consumer, b.claim.Key.ID, won.At)
	a.conn, c.held = c, a
	return heldTx{a}, nil
}
