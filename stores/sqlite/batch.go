package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// BatchLimit implements stores.Batcher. Only time limits a batch.
func (*Store) BatchLimit(int) int { return batchLimit }

const batchLimit = 1000

// BeginBatch implements stores.Batcher. It queues for the writer like Begin.
func (s *Store) BeginBatch(ctx context.Context, claims []stores.Claim) (stores.Batch, error) {
	consumer, err := s.tables.Known(claims[0].Key)
	if err != nil {
		return nil, err
	}
	b := &batch{store: s, consumer: consumer, members: make([]stores.Member, len(claims))}
	candidates := make([]*member, len(claims))
	for i := range claims {
		if f := (flight{consumer, string(claims[i].Key.ID)}); s.flights.takeOff(f) {
			candidates[i] = &member{batch: b, flight: f, claim: claim{Claim: claims[i], consumer: consumer}}
		}
	}
	begin := beginning{inMemory: true, decide: func(c *conn) error {
		for _, m := range candidates {
			var err error
			if m == nil {
				continue
			}
			if m.won, err = c.insert(&m.claim); err != nil {
				return err
			}
		}
		return nil
	}}
	tx, err := s.beginClaim(ctx, &begin, func() error { return nil })
	for i, m := range candidates {
		switch {
		case m == nil:
		case err != nil || !m.won:
			s.flights.land(m.flight)
		default:
			s.flights.opened(m.flight)
			b.members[i], b.own = m, append(b.own, m)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", s.explain(ctx, err))
	}
	b.tx, b.conn, b.session = tx, begin.conn, begin.conn.session
	if err := b.lend(); err != nil {
		b.end()
		return nil, fmt.Errorf("sqlite: %w", unavailable(err))
	}
	return b, nil
}

// batch is one transaction that holds the claims of its members. Their handlers use it one after
// the other.
type batch struct {
	store    *Store
	consumer int64
	members  []stores.Member
	own      []*member // the members whose claims were won

	tx      *sql.Tx
	conn    *conn
	session *session // the session of tx
	over    sync.Once

	outcome sqltx.Outcome
	lost    error           // why it cannot be committed
	staged  sqlstore.Staged // outputs of the kept members
}

// Members implements stores.Batch.
func (b *batch) Members() []stores.Member { return b.members }

// Server implements stores.Batch.
func (*batch) Server() uint64 { return 0 }

// Commit implements stores.Batch. A second call returns the same.
func (b *batch) Commit(ctx context.Context) error {
	return b.outcome.Commit(func() error {
		err := b.commit(ctx)
		_ = waitFor(ctx, b.end)
		return err
	})
}

func (b *batch) commit(ctx context.Context) error {
	if b.lost == nil && ctx.Err() != nil {
		_ = b.lose(context.Cause(ctx))
	}
	if b.lost != nil {
		return pkg.NotCommitted(b.lost)
	}
	c := b.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.open() {
		return pkg.NotCommitted(b.lose(c.endedBy()))
	}
	for _, m := range b.own {
		if m.ran {
			continue
		}
		if err := m.unclaim(); err != nil {
			return pkg.NotCommitted(b.lose(err))
		}
	}
	return c.commitAfter(c.emit(b.staged))
}

// open reports whether the transaction is still open. The caller holds conn.mu.
func (b *batch) open() bool { return b.conn.session == b.session && b.conn.phase == txOpen }

// lose notes that the batch cannot be committed, and why.
func (b *batch) lose(why error) error {
	if b.lost == nil {
		b.lost = fmt.Errorf("sqlite: %w: %w", stores.ErrBatchLost, why)
	}
	return b.lost
}

// Rollback implements stores.Batch.
func (b *batch) Rollback(ctx context.Context) error {
	return b.outcome.Rollback(pkg, func() error {
		_ = waitFor(ctx, b.end)
		return nil
	})
}

// Cut implements stores.Batch. It interrupts a running statement; nothing is committed, whatever
// the statement's result.
func (b *batch) Cut() {
	for _, m := range b.own {
		m.session.closing.Store(true)
		m.session.handling.interrupt(sql.ErrTxDone)
	}
	go b.end()
}

// end gives everything back. database/sql rolls back an open transaction.
func (b *batch) end() {
	b.over.Do(func() {
		b.session.closing.Store(true)
		for _, m := range b.own {
			if m.tx != nil {
				m.session.closing.Store(true)
				m.endTx()
			}
		}
		_ = b.tx.Rollback() // does nothing after a commit
		b.store.writer.release()
		for _, m := range b.own {
			b.store.flights.land(m.flight)
		}
	})
}

// member is one message's part of a batch.
type member struct {
	sqltx.Entry

	batch   *batch
	flight  flight
	claim   claim
	won     bool
	session *session
	tx      *sql.Tx

	saved  bool // whether its savepoint is made; guarded by conn.mu
	ran    bool
	over   sync.Once
	apart  sqltx.Apart
	staged sqlstore.Staged // outputs before Keep
}

var (
	_ stores.Member   = (*member)(nil)
	_ stores.Refusing = (*member)(nil)
)

// Context implements stores.Member.
func (m *member) Context(parent context.Context) context.Context {
	m.session.handling.begin(m.claim.Bound)
	return context.WithValue(parent, attemptKey{}, m)
}

// Native implements sqltx.Carrier.
func (m *member) Native() *sql.Tx { return m.tx }

// Refuses implements stores.Refusing.
func (*member) Refuses(err error) bool { return refusesValue(err) }

// Emit implements stores.Emitter.
func (m *member) Emit(outputs []stores.Output) error {
	if m.ran {
		return errClosed
	}
	return m.batch.store.tables.Stage(&m.staged, outputs)
}

var errClosed = fmt.Errorf("sqlite: %w", stores.ErrTxClosed)

// admit refuses statements that cannot be shared. A nil member has its own transaction and shares
// nothing.
func (m *member) admit(query string) error {
	if m == nil || query == "" {
		return nil
	}
	if what := unshared(query); what != "" {
		return m.apart.Note(pkg, what)
	}
	return nil
}

// save makes the savepoint before the first statement. The caller holds conn.mu.
func (m *member) save() error {
	if m == nil || m.saved {
		return nil
	}
	err := m.batch.conn.run(saveStatement)
	m.saved = err == nil
	return err
}

// Keep implements stores.Member. ctx bounds the wait for goroutines of the handler.
func (m *member) Keep(ctx context.Context) error {
	if m.ran {
		return errClosed
	}
	reason := m.end(ctx, true)
	if reason == nil {
		m.batch.staged = append(m.batch.staged, m.staged...)
		return nil
	}
	return pkg.NotCommitted(reason)
}

// Leave implements stores.Member, with ctx as in Keep.
func (m *member) Leave(ctx context.Context) error {
	if m.ran {
		return errClosed
	}
	return errors.Join(m.apart.Err(pkg), m.end(ctx, false))
}

// end ends the run, and keeps its effects unless there is a reason not to.
func (m *member) end(ctx context.Context, keep bool) (reason error) {
	b, c := m.batch, m.batch.conn
	m.ran = true
	if m.session.closing.Swap(true) { // the batch was cut
		return b.lose(stores.ErrTxEnded)
	}
	busy := m.session.inUse()
	if !m.close(ctx, busy) {
		m.session.handling.interrupt(sql.ErrTxDone)
		return errors.Join(stores.ErrTxBusy, b.lose(stores.ErrTxBusy))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.session.handling.end()
	switch {
	case b.lost != nil:
		return b.lost
	case !b.open():
		return errors.Join(m.session.endedBy(), b.lose(stores.ErrTxEnded))
	}
	if keep {
		if reason = m.unfit(); busy && reason == nil {
			reason = stores.ErrTxBusy
		}
		if reason == nil {
			return m.release()
		}
	}
	return errors.Join(reason, m.undo())
}

// close ends the *sql.Tx, so that goroutines left behind by the handler lose the connection. It
// waits for their statements, because an interrupted one would roll back the writes of all members.
func (m *member) close(ctx context.Context, busy bool) (over bool) {
	if !busy {
		m.endTx()
		return true
	}
	return waitFor(ctx, m.endTx) == nil
}

// endTx waits for statements on the *sql.Tx, and then ends only the *sql.Tx: see lender.
func (m *member) endTx() { m.over.Do(func() { _ = m.tx.Rollback() }) }

// unfit returns why the effects of a handler that returned nil must not be kept.
func (m *member) unfit() error {
	switch err := m.apart.Err(pkg); {
	case err != nil:
		return err
	case m.session.managed:
		return m.session.endedBy()
	}
	return m.Doomed()
}

// release makes the member's effects part of the transaction.
func (m *member) release() error {
	if !m.saved {
		return nil
	}
	if err := m.batch.conn.run(keepStatement); err != nil {
		return m.batch.lose(err)
	}
	return nil
}

// undo undoes the effects and the claim.
func (m *member) undo() error {
	var err error
	if m.saved {
		err = errors.Join(m.batch.conn.run(undoStatement), m.batch.conn.run(keepStatement))
	}
	if err == nil {
		err = m.unclaim()
	}
	if err != nil {
		return m.batch.lose(err)
	}
	return nil
}

// unclaim deletes the claim.
func (m *member) unclaim() error {
	n, err := m.batch.conn.change(unclaimStatement, m.batch.consumer, m.claim.Key.ID)
	if err == nil && n != 1 {
		err = fmt.Errorf("%d claims were taken back instead of one", n)
	}
	return err
}
