package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

var _ stores.Batcher = (*Store)(nil)

// BatchLimit implements stores.Batcher. Only connections of our connector have batches.
func (s *Store) BatchLimit(concurrent int) int {
	if s.ours == nil {
		return 0
	}
	return s.tables.BatchLimit(concurrent)
}

// BeginBatch implements stores.Batcher in one round trip.
func (s *Store) BeginBatch(ctx context.Context, claims []stores.Claim) (stores.Batch, error) {
	consumer, err := s.tables.Known(claims[0].Key)
	if err != nil {
		return nil, err
	}
	b := &batch{members: make([]stores.Member, len(claims))}
	begin := &batchBeginning{Context: ctx, store: s, consumer: consumer, claims: claims, batch: b}
	b.tx, err = s.db.BeginTx(begin, nil)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, s.tables.Explain(sqlstore.Exhausted(ctx, s.db, err))
	case err != nil:
		return nil, s.tables.Explain(err)
	}
	for _, m := range b.own {
		if m.tx, err = s.lender.Lend(loan{Loan: sqltx.Loan{End: m.endByHandler}, conn: b.conn, member: m}); err != nil {
			b.Cut()
			return nil, s.tables.Explain(err)
		}
	}
	return b, nil
}

// batchBeginning is the context of a BeginTx that makes the driver begin with claims. It ends as
// beginning does.
type batchBeginning struct {
	context.Context //nolint:containedctx // this is a context

	store    *Store
	consumer int64
	claims   []stores.Claim
	batch    *batch
	won      atomic.Bool
}

// Done implements context.Context.
func (b *batchBeginning) Done() <-chan struct{} {
	if b.won.Load() {
		return nil
	}
	return b.Context.Done()
}

// beginBatch is BeginTx with claims.
func (c *conn) beginBatch(begin *batchBeginning) (driver.Tx, error) {
	pgxConn := c.Conn()
	if pgxConn.IsClosed() {
		return nil, driver.ErrBadConn
	}
	b := begin.batch
	shared, err := claimtx.Share(begin.Context, pgxConn, begin.store.tables, begin.consumer, begin.claims, func(claim int, won *claimtx.Member) *claimtx.Tx {
		m := &member{Member: won, batch: b}
		b.members[claim], b.own = m, append(b.own, m)
		return &m.counts
	})
	switch {
	case err != nil && pgconn.SafeToRetry(err):
		return nil, driver.ErrBadConn // database/sql then uses another connection
	case err != nil:
		claimtx.Abandon(begin.Context, pgxConn)
		return nil, err
	}
	begin.won.Store(true)
	b.Shared, b.conn = shared, c
	return sharedTx{}, nil
}

// sharedTx is the transaction that database/sql sees; the batch ends the real one itself.
type sharedTx struct{}

func (sharedTx) Commit() error   { return stores.ErrTxManaged }
func (sharedTx) Rollback() error { return nil }

// batch is one transaction that holds several claims.
type batch struct {
	*claimtx.Shared

	members []stores.Member
	own     []*member // the members whose claims were won
	conn    *conn
	tx      *sql.Tx
	over    sync.Once
	idle    atomic.Bool // the connection is not in use
	closing sync.Mutex  // one statement is closed at a time once the connection is idle
}

// Members implements stores.Batch.
func (b *batch) Members() []stores.Member { return b.members }

// Server implements stores.Batch.
func (b *batch) Server() uint64 { return b.Shared.Server }

// Commit implements stores.Batch. A second call returns the same.
func (b *batch) Commit(ctx context.Context) error { return b.giveBack(b.Shared.Commit(ctx)) }

// Rollback implements stores.Batch.
func (b *batch) Rollback(ctx context.Context) error { return b.giveBack(b.Shared.Rollback(ctx)) }

func (b *batch) giveBack(left claimtx.Left, err error) error {
	switch left {
	case claimtx.Already:
	case claimtx.Usable:
		b.end()
	case claimtx.InUse:
		b.Cut()
	}
	return err
}

// Cut implements stores.Batch. The connection is given back once it is not in use.
func (b *batch) Cut() {
	b.over.Do(func() {
		_ = b.conn.Conn().PgConn().Conn().Close()
		go b.leave()
	})
}

func (b *batch) end() {
	b.over.Do(func() {
		b.idle.Store(true)
		b.leave()
	})
}

// leave tells database/sql that the transaction is over. Nothing is sent.
func (b *batch) leave() {
	for _, m := range b.own {
		if m.tx != nil {
			_ = m.tx.Rollback()
		}
	}
	_ = b.tx.Rollback()
}

// member is one message's part of a batch.
type member struct {
	*claimtx.Member

	counts claimtx.Tx // counts its statements
	batch  *batch
	tx     *sql.Tx
}

var (
	_ stores.Member        = (*member)(nil)
	_ stores.Interruptible = (*member)(nil)
	_ stores.Escapable     = (*member)(nil)
	_ stores.Refusing      = (*member)(nil)
)

// Context implements stores.Member.
func (m *member) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, m)
}

// Native implements sqltx.Carrier.
func (m *member) Native() *sql.Tx { return m.tx }

// Admit implements holder: it checks that a statement can be shared.
func (m *member) Admit(query string) error {
	if what := claimtx.Read(query).Unshared; what != "" {
		return m.Apart(what)
	}
	return m.Member.Admit(query)
}
