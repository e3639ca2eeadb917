package claimtx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Shared is one transaction that holds the claims of several messages. Their handlers use it one
// after the other, each after a savepoint.
type Shared struct {
	Server uint64
	Tx     pgx.Tx

	base    Tx
	members []*Member // the members whose claims were won
	broken  error     // why it cannot be committed
	inUse   bool      // a goroutine may still read from the connection
}

// Member is one message's part of a shared transaction.
type Member struct {
	*Tx

	shared  *Shared
	saved   bool // whether its savepoint is made
	kept    bool
	ran     bool
	apart   sqltx.Apart
	outputs []stores.Output
	queued  sqlstore.Staged // statements that are sent with COMMIT
	dropped error           // why it was not committed with the others
}

// Savepoint is sent before a member's first statement. Earlier members' savepoints stay: a rollback
// goes to the innermost one.
const Savepoint = "SAVEPOINT millpond_member"

// Share begins a transaction with claims, on a connection without one, in one round trip. It calls
// each with the index of each won claim, and gets the Tx that counts the member's statements. After
// an error the connection may have a transaction.
func Share(ctx context.Context, conn *pgx.Conn, t *tables.Tables, consumer int64, claims []stores.Claim, each func(claim int, m *Member) *Tx) (*Shared, error) {
	var (
		s    = &Shared{members: make([]*Member, 0, len(claims))}
		won  = make([]bool, len(claims))
		sent = append(make([]tables.Statement, 0, 3), tables.Statement{Text: t.BeginText()}) //nolint:mnd // at most
		at   int64
		err  error
	)
	if text, args := t.Bound(&claims[0]); text != "" {
		sent = append(sent, tables.Statement{Text: text, Args: args})
	}
	text, args := t.ClaimBatch(consumer, claims)
	sent = append(sent, tables.Statement{Text: text, Args: args, Read: func(rows tables.Rows) error {
		var id []byte
		for rows.Next() {
			if err := rows.Scan(&id, &at, &s.Server); err != nil {
				return err
			}
			if i := first(claims, id); i >= 0 { // a duplicate key is won once
				won[i] = true
			}
		}
		return rows.Err()
	}})
	if s.Tx, err = send(ctx, conn, t.TxOptions(), sent); err != nil {
		return nil, err
	}
	s.base.Init(t, conn, consumer, nil, time.UnixMicro(at))
	for i := range claims {
		if !won[i] {
			continue
		}
		m := &Member{shared: s}
		m.Tx = each(i, m)
		m.join(&s.base, claims[i].Key.ID)
		s.members = append(s.members, m)
	}
	return s, nil
}

// first returns the first claim with that id.
func first(claims []stores.Claim, id []byte) int {
	for i := range claims { // a claim is large, and not copied
		if bytes.Equal(claims[i].Key.ID, id) {
			return i
		}
	}
	return -1
}

// Apart notes that the handler wants something that cannot be shared, and returns its error.
func (m *Member) Apart(what string) error { return m.apart.Note(pkg, what) }

// Saved notes that the savepoint is made.
func (m *Member) Saved() { m.saved = true }

// Saving reports whether the savepoint must still be made.
func (m *Member) Saving() bool { return !m.saved }

// Emit implements stores.Emitter. The outputs of all members are written together at the end, so
// that the locks of order keys are taken in one order.
func (m *Member) Emit(outputs []stores.Output) error {
	if m.ran {
		return m.closed()
	}
	scratch := m.staged[:0:0]
	if err := m.tables.Stage(&scratch, outputs); err != nil {
		return err
	}
	m.outputs = append(m.outputs, outputs...)
	return nil
}

// closed is the error after the end of a run, when the connection may serve others.
func (m *Member) closed() error { return fmt.Errorf("postgres: %w", stores.ErrTxClosed) }

// Keep implements stores.Member.
func (m *Member) Keep(ctx context.Context) error {
	if m.ran {
		return m.closed()
	}
	s, pg := m.shared, m.conn.PgConn()
	idle := m.gate.Close()
	m.ran = true
	var reason error
	switch {
	case s.broken != nil:
		reason = s.broken
	case !idle || !pg.IsClosed() && pg.IsBusy():
		s.inUse = true
		reason = errors.Join(stores.ErrTxBusy, s.lose(stores.ErrTxBusy))
	case pg.IsClosed():
		reason = errors.Join(m.aborted(), s.lose(m.gate.Failure()))
	case pg.TxStatus() == 'I':
		reason = errors.Join(sqltx.ErrEscaped, s.lose(sqltx.ErrEscaped))
	default:
		reason = m.unfit()
		if reason == nil {
			m.kept = true
			return nil
		}
		reason = errors.Join(reason, m.undo(ctx))
	}
	return pkg.NotCommitted(reason)
}

// unfit returns why the effects of a handler that returned nil must not be kept.
func (m *Member) unfit() error {
	var aborted error
	if m.conn.PgConn().TxStatus() == 'E' {
		aborted = m.aborted()
	}
	if m.sessionChanged() {
		_ = m.Apart("a setting of the session")
	}
	if err := m.apart.Err(pkg); err != nil {
		return err
	}
	return errors.Join(aborted, m.Doomed())
}

// sessionChanged reports whether the member changed the session. One that has sent nothing yet only
// asked to.
func (m *Member) sessionChanged() bool {
	if !m.saved {
		return m.session.marked.Load()
	}
	return m.session.Changed(m.conn.PgConn())
}

// Leave implements stores.Member.
func (m *Member) Leave(ctx context.Context) error {
	if m.ran {
		return m.closed()
	}
	s, pg := m.shared, m.conn.PgConn()
	idle := m.gate.Close()
	m.ran = true
	var err error
	switch {
	case s.broken != nil:
		err = s.broken
	case !idle || !pg.IsClosed() && pg.TxStatus() != 'I' && pg.IsBusy():
		s.inUse = true
		err = s.lose(stores.ErrTxBusy)
	case pg.IsClosed():
		err = s.lose(m.gate.Failure())
	case pg.TxStatus() == 'I':
		err = s.lose(sqltx.ErrEscaped)
	default:
		err = m.undo(ctx)
	}
	return errors.Join(m.apart.Err(pkg), err)
}

// undo rolls back to the savepoint and deletes the claim, in one round trip.
func (m *Member) undo(ctx context.Context) error {
	s, pg := m.shared, m.conn.PgConn()
	if pg.TxStatus() == 'E' && !m.saved {
		return s.lose(m.gate.Failure()) // the driver could not prepare its first statement
	}
	var statements []tables.Statement
	if m.saved {
		statements = append(statements, tables.Statement{Text: "ROLLBACK TO SAVEPOINT millpond_member"})
	}
	statements = append(statements, m.tables.Unclaim(m.consumer, m.id))
	last := ""
	for _, statement := range statements {
		(*link)(nil).queue(pg.Frontend(), &statement)
	}
	pg.Frontend().Send(&pgproto3.Sync{})
	err := converse(ctx, pg, false, func(message pgproto3.BackendMessage) error {
		if done, ok := message.(*pgproto3.CommandComplete); ok {
			last = string(done.CommandTag)
		}
		return nil
	})
	switch {
	case err != nil:
		return s.lose(err)
	case last != "DELETE 1":
		return s.lose(fmt.Errorf("deleting its claim was answered by %q", last))
	}
	return nil
}

// lose notes that the batch cannot be committed, and why.
func (s *Shared) lose(why error) error {
	if s.broken == nil {
		s.broken = fmt.Errorf("postgres: %w", stores.ErrBatchLost)
		if why != nil {
			s.broken = fmt.Errorf("%w: %w", s.broken, why)
		}
	}
	return s.broken
}

// Commit implements stores.Batch. In COMMIT's round trip the claims of members that have not run
// are deleted, and the server counts the others.
func (s *Shared) Commit(ctx context.Context) (left Left, err error) {
	err = s.base.outcome.Commit(func() (err error) {
		left, err = s.commit(ctx)
		if left == Usable {
			s.base.retire(ctx)
		}
		return err
	})
	return left, err
}

func (s *Shared) commit(ctx context.Context) (Left, error) {
	pg := s.base.conn.PgConn()
	switch {
	case s.broken != nil && s.inUse:
		return InUse, pkg.NotCommitted(s.broken)
	case s.broken != nil:
		return Usable, pkg.NotCommitted(errors.Join(s.broken, s.base.end(ctx)))
	case !pg.IsClosed() && pg.TxStatus() == 'I':
		return Usable, pkg.NotCommitted(s.lose(sqltx.ErrEscaped))
	case pg.IsClosed(), pg.IsBusy(), pg.TxStatus() != 'T', ctx.Err() != nil:
		return Usable, pkg.NotCommitted(errors.Join(s.lose(ctx.Err()), s.base.end(context.WithoutCancel(ctx))))
	}
	a, err := s.sendLast(ctx)
	switch {
	case errors.Is(err, errNotSent):
		return Usable, pkg.NotCommitted(errors.Join(s.lose(err), s.base.end(ctx)))
	case tables.NotOurs(err):
		return Usable, pkg.NotCommitted(errors.Join(s.lose(sqltx.ErrEscaped), s.base.end(ctx)))
	}
	return Usable, s.base.committed(ctx, a.tag, err)
}

// proof returns the statements that keep exactly the claims of the kept members.
func (s *Shared) proof() []tables.Statement {
	var (
		all        = make([][]byte, 0, len(s.members))
		unrun      [][]byte
		kept       int
		statements []tables.Statement
	)
	for _, m := range s.members {
		all = append(all, m.id)
		switch {
		case m.kept:
			kept++
		case !m.ran:
			unrun = append(unrun, m.id)
		}
	}
	if len(unrun) > 0 {
		statements = append(statements, s.base.tables.UnclaimAll(s.base.consumer, unrun))
	}
	return append(statements, s.base.tables.OwnedBatch(s.base.consumer, all, kept))
}

// Rollback implements stores.Batch.
func (s *Shared) Rollback(ctx context.Context) (left Left, err error) {
	err = s.base.outcome.Rollback(pkg, func() (err error) {
		if s.inUse {
			left = InUse
			return nil
		}
		left = Usable
		return s.base.end(ctx)
	})
	return left, err
}
