package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

var _ stores.Batcher = (*Store)(nil)

// BatchLimit implements stores.Batcher. Each member takes one of the server's locks.
func (s *Store) BatchLimit(concurrent int) int { return s.tables.BatchLimit(concurrent) }

// BeginBatch implements stores.Batcher in one round trip.
func (s *Store) BeginBatch(ctx context.Context, claims []stores.Claim) (stores.Batch, error) {
	consumer, err := s.tables.Known(claims[0].Key)
	if err != nil {
		return nil, err
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	b := &batch{store: s, conn: conn, members: make([]stores.Member, len(claims))}
	begun := false
	defer func() {
		if !begun { // a tracer panicked
			b.Cut()
		}
	}()
	b.Shared, err = claimtx.Share(ctx, conn.Conn(), s.tables, consumer, claims, func(claim int, won *claimtx.Member) *claimtx.Tx {
		m := &member{Member: won, batch: b}
		m.own.member, b.members[claim] = m, m
		return &m.own.Tx
	})
	if err != nil {
		claimtx.Abandon(ctx, conn.Conn())
	}
	begun = true
	if err != nil {
		conn.Release()
		return nil, s.tables.Explain(err)
	}
	return b, nil
}

// batch is one transaction that holds several claims.
type batch struct {
	*claimtx.Shared

	store   *Store
	members []stores.Member

	mu   sync.Mutex
	conn *pgxpool.Conn // nil: given back
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
		if conn := b.take(); conn != nil {
			conn.Release()
		}
	case claimtx.InUse:
		b.Cut()
	}
	return err
}

func (b *batch) take() *pgxpool.Conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	conn := b.conn
	b.conn = nil
	return conn
}

// Cut implements stores.Batch.
func (b *batch) Cut() {
	if conn := b.take(); conn != nil {
		_ = conn.Hijack().PgConn().Conn().Close()
	}
}

// member is one message's part of a batch. Its handler uses the transaction through tx.
type member struct {
	*claimtx.Member

	batch *batch
	own   attempt // counts the statements of tx
	tx    memberTx

	once sync.Once
	dead pgx.Tx // see memberTx.dead
}

var (
	_ stores.Member        = (*member)(nil)
	_ stores.Interruptible = (*member)(nil)
	_ stores.Escapable     = (*member)(nil)
	_ stores.Refusing      = (*member)(nil)
	_ stores.Droppable     = (*member)(nil)
)

// Context implements stores.Member.
func (m *member) Context(parent context.Context) context.Context {
	m.tx = memberTx{managedTx{attempt: &m.own, tx: m.batch.Tx}, m}
	return context.WithValue(parent, attemptKey{}, m)
}

// Native implements sqltx.Carrier.
func (m *member) Native() pgx.Tx { return &m.tx }
