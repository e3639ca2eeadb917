package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// member is one message's part of a batch.
type member struct {
	sqltx.Entry

	batch *batch
	claim claimed
	run   *transaction // counts and judges its statements
	tx    *sql.Tx
	over  sync.Once

	saved   bool // whether its savepoint is made
	ran     bool
	kept    bool
	apart   sqltx.Apart
	outputs []stores.Output
}

var (
	_ stores.Member        = (*member)(nil)
	_ stores.Interruptible = (*member)(nil)
	_ stores.Refusing      = (*member)(nil)
)

// Context implements stores.Member.
func (m *member) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, m)
}

// Native implements sqltx.Carrier.
func (m *member) Native() *sql.Tx { return m.tx }

// Interrupted implements stores.Interruptible.
func (m *member) Interrupted() error { return pkg.Interrupted(m.run.gate.Failure(), interruption) }

// Refuses implements stores.Refusing.
func (*member) Refuses(err error) bool { return refusesValue(err) }

var errClosed = fmt.Errorf("mysql: %w", stores.ErrTxClosed)

// Emit implements stores.Emitter. The outputs of all members are written together at the end.
func (m *member) Emit(outputs []stores.Output) error {
	if m.ran {
		return errClosed
	}
	var scratch sqlstore.Staged
	if err := m.batch.ss.store.tables.Stage(&scratch, outputs); err != nil {
		return err
	}
	m.outputs = append(m.outputs, outputs...)
	return nil
}

// Keep implements stores.Member.
func (m *member) Keep(ctx context.Context) error {
	if m.ran {
		return errClosed
	}
	if err := m.end(ctx, true); err != nil {
		return pkg.NotCommitted(err)
	}
	return nil
}

// Leave implements stores.Member.
func (m *member) Leave(ctx context.Context) error {
	if m.ran {
		return errClosed
	}
	return errors.Join(m.apart.Err(pkg), m.end(ctx, false))
}

// end ends the run, and keeps its effects unless there is a reason not to.
func (m *member) end(ctx context.Context, keep bool) (reason error) {
	m.ran = true
	if !m.run.gate.Close() {
		return errors.Join(stores.ErrTxBusy, m.batch.lose(stores.ErrTxBusy))
	}
	failure := m.run.gate.Failure()
	if err := m.batch.usable(); err != nil {
		return errors.Join(failure, err)
	}
	m.endTx()
	if err := m.run.conn.closeLeft(); err != nil {
		return errors.Join(failure, m.batch.lose(err))
	}
	if keep {
		reason = errors.Join(m.apart.Err(pkg), m.Doomed())
	}
	if !keep || reason != nil {
		return errors.Join(reason, m.undo(ctx))
	}
	if failure != nil && m.saved { // the handler may hide that the whole transaction was rolled back
		if _, err := m.batch.send(ctx, savepointThere); err != nil {
			return errors.Join(sqltx.Aborted(failure), m.batch.lose(failure))
		}
	}
	m.kept = true
	return nil
}

// endTx ends the *sql.Tx, so that goroutines left behind by the handler lose the connection.
func (m *member) endTx() { m.over.Do(func() { _ = m.tx.Rollback() }) }

// endByHandler dooms a run that is not over, and ends nothing else.
func (m *member) endByHandler() error {
	if m.run.gate.Closed() {
		return nil
	}
	m.Doom(stores.ErrTxManaged)
	return stores.ErrTxManaged
}

// undo undoes the effects and the claim. If both are there, the transaction is still the batch's.
func (m *member) undo(ctx context.Context) error {
	t := m.batch.ss.store.texts()
	if m.saved && t.maria {
		if _, err := m.batch.send(ctx, string(t.undo(nil, &m.claim))); err != nil {
			return m.batch.lose(m.blame(err))
		}
		return nil
	}
	var deleted int64
	var err error
	if m.saved {
		_, err = m.batch.send(ctx, rollbackToSaved)
	}
	if err == nil {
		deleted, err = m.batch.send(ctx, string(t.unclaim(nil, &m.claim)))
	}
	if err == nil && deleted != 1 {
		err = errLost
	}
	if err != nil {
		return m.batch.lose(m.blame(err))
	}
	return nil
}

// blame adds the failure that ended the transaction.
func (m *member) blame(err error) error { return errors.Join(m.run.gate.Failure(), err) }

// admit takes the connection for a statement that can be shared. Before the first one it makes the
// savepoint, in a separate round trip.
func (m *member) admit(ctx context.Context, text string) error {
	c := m.run.conn
	if ctx.Value(storeKey{}) == nil {
		if what := unshared(text, c.noEscapes); what != "" {
			return m.apart.Note(pkg, what)
		}
	}
	if err := m.run.acquire(); err != nil || m.saved {
		return err
	}
	_, err := pass(ctx, m.run, "", func(ctx context.Context) (driver.Result, error) { return c.native.ExecContext(ctx, savepoint, nil) })
	if err != nil {
		return err
	}
	m.saved = true
	return m.run.acquire()
}

// loan is a member's connection as database/sql sees it.
type loan struct {
	sqltx.Loan

	member *member
}

var (
	_ driver.ConnBeginTx        = loan{}
	_ driver.ExecerContext      = loan{}
	_ driver.QueryerContext     = loan{}
	_ driver.ConnPrepareContext = loan{}
	_ driver.NamedValueChecker  = loan{}
)

// CheckNamedValue implements driver.NamedValueChecker.
func (l loan) CheckNamedValue(v *driver.NamedValue) error {
	return l.member.run.conn.CheckNamedValue(v)
}

// ExecContext implements driver.ExecerContext.
func (l loan) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if err := l.member.admit(ctx, text); err != nil {
		return nil, err
	}
	return l.member.run.exec(ctx, text, args, plain)
}

// QueryContext implements driver.QueryerContext.
func (l loan) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if err := l.member.admit(ctx, text); err != nil {
		return nil, err
	}
	return l.member.run.query(ctx, text, args, plain)
}

// PrepareContext implements driver.ConnPrepareContext.
func (l loan) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	if err := l.member.admit(ctx, text); err != nil {
		return nil, err
	}
	return l.member.run.prepare(ctx, text, plain)
}

// Prepare implements driver.Conn.
func (l loan) Prepare(text string) (driver.Stmt, error) {
	return l.PrepareContext(context.Background(), text)
}
