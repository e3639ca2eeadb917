package claimtx

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Hand is Tx.Hand in a batch: the statements of all members are sent with its COMMIT. If the
// handler also sent statements itself, the queued ones are sent now, so that one rollback undoes
// both.
func (m *Member) Hand(ctx context.Context, h *Handed) (err error) {
	texts, err := m.texts(h, false)
	if err != nil {
		return err
	}
	if err := m.Acquire(); err != nil {
		return err
	}
	defer func() { m.Release(err) }()
	if _, err := linkTo(ctx, m.conn); err != nil { // a batch's claims were sent without a link
		return err
	}
	l := m.link()
	switch {
	case m.saved:
		return m.sendHanded(ctx, texts, h, nil)
	case l == nil:
		return m.sendHanded(ctx, texts, h, m.Saved)
	}
	staged, err := m.stage(ctx, l, texts, h)
	if err == nil {
		m.queued, m.handed = staged, h
	}
	return err
}

// Dropped implements stores.Droppable.
func (m *Member) Dropped() error { return m.dropped }

// The savepoint before the statements sent with COMMIT.
const (
	saveHanded = "SAVEPOINT millpond_handed"
	undoHanded = "ROLLBACK TO SAVEPOINT millpond_handed"
)

// last is what is sent with COMMIT, and each statement's member; nil: millpond's own.
type last struct {
	statements []tables.Statement
	whose      []*Member
	first      map[*Member]int // where a member's statements begin
}

func (l *last) add(m *Member, statements ...tables.Statement) {
	if m != nil && len(statements) > 0 {
		l.first[m] = len(l.statements)
	}
	for _, s := range statements {
		l.statements, l.whose = append(l.statements, s), append(l.whose, m)
	}
}

// last returns the members' queued statements, the check of the claims, and the outputs. On a
// second try it first rolls back to the savepoint, and deletes the dropped members' claims.
func (s *Shared) last(again bool) (*last, error) {
	l := &last{first: make(map[*Member]int, len(s.members))}
	var outputs sqlstore.Staged
	if again {
		l.add(nil, tables.Statement{Text: undoHanded})
	}
	for _, m := range s.members {
		if m.dropped != nil {
			l.add(nil, m.tables.Unclaim(m.consumer, m.id))
		}
		if !m.kept {
			continue
		}
		if m.queued != nil {
			if !again && len(l.statements) == 0 {
				l.add(nil, tables.Statement{Text: saveHanded})
			}
			l.add(m, m.queued...)
		}
		if err := s.base.tables.Stage(&outputs, m.outputs); err != nil {
			return nil, err
		}
	}
	l.add(nil, s.proof()...)
	l.add(nil, outputs...)
	return l, nil
}

// drop drops the member whose statement the server refused. It returns false if instead all members
// must run again, as after a deadlock, which is no member's fault.
func (s *Shared) drop(l *last, done int, err error) bool {
	if err == nil || done >= len(l.whose) || l.whose[done] == nil || !tables.Refused(err) || tables.Interruption(err) || tables.NotPrepared(err) {
		return false
	}
	m := l.whose[done]
	if m.saved || s.droppedAfter(m) { // undoHanded does not undo statements that a middleware sent after the handler
		return false
	}
	err = m.handed.failed(done-l.first[m], err)
	m.gate.Fail(err)
	m.kept, m.dropped = false, pkg.NotCommitted(err)
	return true
}

// droppedAfter reports whether a later member was dropped: m's rows may be the reason.
func (s *Shared) droppedAfter(m *Member) bool {
	at := slices.Index(s.members, m)
	return slices.ContainsFunc(s.members[at:], func(later *Member) bool { return later.dropped != nil })
}

// sendLast sends COMMIT, and sends it again without a member that it had to drop.
func (s *Shared) sendLast(ctx context.Context) (a answer, err error) {
	for again := false; ; again = true {
		l, err := s.last(again)
		if err != nil {
			return a, fmt.Errorf("%w: %w", errNotSent, err)
		}
		a, err = sendCommit(ctx, s.base.conn.PgConn(), s.base.link(), l.statements)
		if !s.drop(l, a.done, err) {
			return a, err
		}
	}
}

// errNotSent: COMMIT was not sent.
var errNotSent = errors.New("postgres: COMMIT was not sent")
