package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

var _ stores.Batcher = (*Store)(nil)

// BatchLimit implements stores.Batcher. Batches need connections of the store's own, READ
// COMMITTED, and on MySQL their procedures. They are untested on TiDB. Claims take no room in the
// server's lock table, so only time limits their number.
func (s *Store) BatchLimit(int) int {
	t := s.texts()
	if !s.own || t == nil || t.tidb || t.isolation != levelName(sql.LevelReadCommitted) || !t.maria && !t.batches {
		return 0
	}
	return batchLimit
}

const batchLimit = 1000

var errNoBatches = fmt.Errorf("mysql: %w: the store has no batches on this server", stores.ErrNotShared)

// BeginBatch implements stores.Batcher in one round trip, or two on MariaDB if a claim is not won.
// No claim waits for another delivery of its key.
func (s *Store) BeginBatch(ctx context.Context, claims []stores.Claim) (stores.Batch, error) {
	consumer, err := s.tables.Known(claims[0].Key)
	if err != nil {
		return nil, err
	}
	if s.BatchLimit(1) == 0 { // a procedure is gone
		return nil, errNoBatches
	}
	token := rand.Int64() //nolint:gosec // it distinguishes batches and is no secret
	order := make([]int, len(claims))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return bytes.Compare(claims[a].Key.ID, claims[b].Key.ID) })
	begin := &beginning{ctx: ctx, texts: s.texts(), bound: claims[0].Bound, all: make([]claimed, len(claims))}
	for i, at := range order {
		begin.all[i] = newClaimed(consumer, &claims[at], token)
		if t := claims[at].Time; !t.IsZero() {
			begin.all[i].time = t.UnixMicro()
		}
	}
	ss, err := s.opened(ctx, func(ss *session) error { return ss.start(ctx, begin) })
	if err != nil {
		return nil, s.tables.Explain(ctx, err)
	}
	b := &batch{ss: ss, members: make([]stores.Member, len(claims))}
	for i, won := range begin.won {
		if won {
			m := &member{batch: b, claim: begin.all[i], run: newTransaction(ss.own.conn)}
			m.run.shared, b.members[order[i]] = true, m
		}
	}
	for _, m := range b.members {
		if m, ok := m.(*member); ok {
			if m.tx, err = s.lender.Lend(loan{sqltx.Loan{End: m.endByHandler}, m}); err != nil {
				b.Cut()
				return nil, s.tables.Explain(ctx, err)
			}
			b.own = append(b.own, m)
		}
	}
	return b, nil
}

// batch is one transaction that holds the claims of its members, on one of the store's own
// connections. Their handlers use it one after the other.
type batch struct {
	ss      *session
	members []stores.Member
	own     []*member // the members whose claims were won

	outcome sqltx.Outcome
	lost    error // why it cannot be committed
	cut     atomic.Bool
	over    sync.Once
}

// Members implements stores.Batch.
func (b *batch) Members() []stores.Member { return b.members }

// Server implements stores.Batch.
func (b *batch) Server() uint64 { return b.ss.server }

// lose notes that the batch cannot be committed, and why.
func (b *batch) lose(why error) error {
	if b.lost == nil {
		b.lost = fmt.Errorf("mysql: %w: %w", stores.ErrBatchLost, why)
	}
	return b.lost
}

// send sends a statement of the store while no member can send one.
func (b *batch) send(ctx context.Context, text string) (affected int64, err error) {
	return b.ss.own.send(ctx, text)
}

// usable returns nil, or why nothing can be sent on the connection.
func (b *batch) usable() error {
	switch {
	case b.lost != nil:
		return b.lost
	case b.cut.Load():
		return b.lose(stores.ErrTxEnded)
	case !b.ss.own.conn.IsValid():
		return b.lose(stores.ErrTxAborted)
	}
	return nil
}

// Commit implements stores.Batch. A second call returns the same.
func (b *batch) Commit(ctx context.Context) error {
	return b.outcome.Commit(func() error {
		if err := b.usable(); err != nil {
			b.rollback(ctx)
			return pkg.NotCommitted(err)
		}
		if ctx.Err() != nil {
			err := b.lose(context.Cause(ctx))
			b.rollback(context.WithoutCancel(ctx))
			return pkg.NotCommitted(err)
		}
		if err := b.complete(ctx); err != nil {
			return b.failed(ctx, err)
		}
		b.ended(func() {
			b.ss.own.finished()
			b.ss.free()
		})
		return nil
	})
}

// complete sends the outputs of the kept members, completes their claims, deletes the claims of
// members that have not run, and only then commits.
func (b *batch) complete(ctx context.Context) error {
	var (
		kept, unrun []*claimed
		outputs     []stores.Output
		staged      sqlstore.Staged
		s           = b.ss.store
	)
	for _, m := range b.own {
		m.run.gate.Close()
		switch {
		case m.kept:
			kept, outputs = append(kept, &m.claim), append(outputs, m.outputs...)
		case !m.ran:
			unrun = append(unrun, &m.claim)
		}
	}
	if len(kept) == 0 {
		_, err := b.send(ctx, "ROLLBACK")
		return err
	}
	if len(outputs) > 0 { // in one statement, so that the locks of order keys are taken in one order
		if err := s.tables.Stage(&staged, outputs); err != nil {
			return fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	riding, err := b.ss.emit(ctx, staged, b.send)
	if err != nil {
		return err
	}
	_, err = b.send(ctx, string(s.texts().completeAll(nil, riding, kept, unrun)))
	return err
}

// errNotSent: the completion was not sent.
var errNotSent = errors.New("the completion was not sent")

// failed judges an error of complete, as attempt.failed does.
func (b *batch) failed(ctx context.Context, err error) error {
	switch n := number(err); {
	case errors.Is(err, errNotSent), errBusy(err), n != 0 && n != disconnectedIdle && !leavesOpen(err):
		b.ss.store.cannotCall(ctx, err)
		b.rollback(ctx)
	case n == disconnectedIdle, isUnsent(err):
		b.ended(b.ss.abandon)
	default:
		b.ended(b.ss.abandon)
		return pkg.CommitUnknown(err)
	}
	return pkg.NotCommitted(b.lose(err))
}

// Rollback implements stores.Batch.
func (b *batch) Rollback(ctx context.Context) error {
	return b.outcome.Rollback(pkg, func() error {
		b.rollback(ctx)
		return nil
	})
}

// rollback rolls back. If the connection is in use or the rollback fails, it closes the connection.
func (b *batch) rollback(ctx context.Context) {
	for _, m := range b.own {
		if !m.run.gate.Close() {
			b.Cut()
			return
		}
	}
	b.ended(func() { b.ss.release(ctx) })
}

// Cut implements stores.Batch. It also tells the server, which may be busy with a statement.
func (b *batch) Cut() {
	b.cut.Store(true)
	for _, m := range b.own {
		m.run.gate.Close()
		m.run.cut() // ends a running statement
	}
	go b.ended(b.ss.abandon)
}

// ended ends the members' transactions and gives the connection back, once.
func (b *batch) ended(giveBack func()) {
	b.over.Do(func() {
		for _, m := range b.own {
			m.run.gate.Close()
			m.endTx()
			m.run.finished()
		}
		_ = b.ss.own.conn.closeLeft() // also waits for a statement of the store, which ends with its context
		giveBack()
	})
}
