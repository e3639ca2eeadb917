package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// transaction is a transaction on one of the store's own connections, from its claim to its end. A
// handler may leave goroutines and rows behind. They must not touch the connection once another
// message uses it, so uses are counted.
type transaction struct {
	conn   *conn
	shared bool // one member's part of a batch

	// Its cancellation closes the connection, which ends every running statement.
	ctx    context.Context
	cancel context.CancelFunc

	suspect atomic.Bool // a statement may have ended it
	loose   atomic.Bool // a statement was sent after the server may have ended it
	managed atomic.Bool // the handler called Commit or Rollback, in SQL or on the *sql.Tx
	ended   atomic.Bool // ended on the server, as far as known

	gate    sqltx.Gate
	renewed bool // a savepoint was set after the first failure; the gate decides
}

func newTransaction(c *conn) *transaction {
	t := &transaction{conn: c}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// acquire notes that the connection is in use until release.
func (t *transaction) acquire() error {
	return t.gate.Acquire(sql.ErrTxDone, func(bool) bool { return t.ended.Load() })
}

func (t *transaction) release(err error) {
	t.gate.Release(func(first error, _ bool) error { return t.judge(first, err) })
}

// judge keeps the first failure; a failure of the database takes precedence over others.
func (t *transaction) judge(first, err error) error {
	if err == nil || errors.Is(err, driver.ErrSkip) || first != nil && (!interruption(err) || interruption(first)) {
		return first
	}
	t.renewed = false
	return err
}

// passed takes the text of a successful statement. ROLLBACK TO a savepoint older than a failure
// undoes that failure, unless the failure ended the transaction.
func (t *transaction) passed(text string) {
	t.gate.Judge(func(first error) error {
		if first == nil {
			return nil
		}
		switch w := (words{rest: text}); w.next() {
		case "SAVEPOINT":
			t.renewed = true
		case "ROLLBACK": // admit accepts no other
			if !t.renewed && undone(first) {
				return nil
			}
		}
		return first
	})
}

// statement returns the context for a statement that was sent with ctx, and done, which takes the
// statement's error and returns the one to report. The context is the transaction's. It is canceled
// if ctx ends while the statement runs, because the driver then closes the connection.
func (t *transaction) statement(ctx context.Context) (running context.Context, done func(error) error) {
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, t.cut)
	}
	return t.ctx, func(err error) error {
		stop()
		switch {
		case errors.Is(err, driver.ErrBadConn) && t.gate.Shared(): // the driver's error for open rows
			err = errRowsOpen
		case !errors.Is(err, context.Canceled):
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = errCut
		}
		if ctx.Value(storeKey{}) != nil && isRefused(err) { // the store goes on without the lock
			t.release(nil)
			return err
		}
		t.release(err)
		return err
	}
}

// pass sends a statement for which the connection was acquired.
func pass[T any](ctx context.Context, t *transaction, text string, send func(context.Context) (T, error)) (T, error) {
	running, done := t.statement(ctx)
	result, err := send(running)
	if err == nil {
		t.passed(text)
	}
	return result, done(err)
}

// ask is pass for a query. Its rows count as in use until they are closed.
func ask(ctx context.Context, t *transaction, send func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	running, done := t.statement(ctx)
	native, err := send(running)
	if err != nil {
		return nil, done(err)
	}
	return newRows(native, done), nil
}

var errRowsOpen = fmt.Errorf("mysql: rows of another statement are open: close them first: %w", stores.ErrTxBusy)

// errCut replaces the driver's error, which only says that the transaction's context ended.
var errCut = fmt.Errorf("mysql: the connection was closed because the context of another statement or of the attempt ended: %w", context.Canceled)

// cut closes the connection under a running statement; the server rolls back.
func (t *transaction) cut() {
	t.conn.discard.Store(true)
	t.cancel()
}

// send sends a statement of the store after close, when no other statement can run.
func (t *transaction) send(ctx context.Context, text string) (affected int64, err error) {
	t.conn.sending.Lock()
	defer t.conn.sending.Unlock()
	affected, err = execText(ctx, t.conn.native, text)
	return affected, t.conn.lost(err)
}

// complete sends the guarded completion with COMMIT as a prepared statement, with the staged
// statements before it. It returns errNotPrepared if it must be sent as text: on MySQL, if the
// claim may belong to another transaction by now or the session changed, and for large or rare
// statements.
func (t *transaction) complete(ctx context.Context, texts *texts, c *claimed, staged sqlstore.Staged) error {
	if t.gate.Failure() != nil || t.suspect.Load() || !texts.maria {
		return errNotPrepared
	}
	t.conn.sending.Lock()
	defer t.conn.sending.Unlock()
	with, text, values := t.conn.completion(texts, staged)
	if with == nil {
		return errNotPrepared
	}
	_, err := with.exec(ctx, t.conn.native, text, append(values, c.consumer, c.id, c.token)...)
	if errors.Is(err, errNotPrepared) {
		return err
	}
	return t.conn.lost(err)
}

// distrust notes a statement that may have ended the transaction.
func (t *transaction) distrust() {
	t.suspect.Store(true)
	if t.gate.Failure() != nil {
		t.loose.Store(true)
	}
}

// finished notes that the server ended the transaction.
func (t *transaction) finished() {
	t.gate.Close()
	t.ended.Store(true)
	t.cancel()
}

// Commit implements driver.Tx, for a handler that calls Commit of its *sql.Tx.
func (t *transaction) Commit() error { return t.endByHandler() }

// Rollback implements driver.Tx. The store calls it when the transaction has ended.
func (t *transaction) Rollback() error {
	if t.gate.Closed() {
		return nil
	}
	return t.endByHandler()
}

// endByHandler rolls back, whatever the handler wanted. If the transaction may no longer be the one
// with the claim, the attempt checks that first.
func (t *transaction) endByHandler() error {
	t.managed.Store(true)
	if t.suspect.Load() {
		t.gate.Close()
	}
	if t.ended.Load() || t.gate.Closed() {
		return stores.ErrTxManaged
	}
	_, err := t.send(context.Background(), "ROLLBACK")
	t.ended.Store(true)
	if err != nil {
		t.conn.discard.Store(true)
	}
	return stores.ErrTxManaged
}

// rows count as in use until they are closed.
type rows struct {
	driver.Rows
	done func(error) error
	err  error
}

// newRows passes on result sets and column types.
func newRows(native driver.Rows, done func(error) error) driver.Rows {
	r := &rows{Rows: native, done: done}
	if more, ok := native.(fullRows); ok {
		return &struct {
			*rows
			columnTypes
			moreResults
		}{r, more, more}
	}
	return r
}

type columnTypes interface {
	ColumnTypeDatabaseTypeName(index int) string
	ColumnTypeNullable(index int) (nullable, ok bool)
	ColumnTypePrecisionScale(index int) (precision, scale int64, ok bool)
	ColumnTypeScanType(index int) reflect.Type
}

type fullRows interface {
	columnTypes
	moreResults
}

type moreResults interface {
	HasNextResultSet() bool
	NextResultSet() error
}

func (r *rows) Next(dest []driver.Value) error {
	err := r.Rows.Next(dest)
	if number(err) != 0 || lostConnection(err) && !isEOF(err) {
		r.err = err
	}
	return err
}

func (r *rows) Close() error {
	err := r.Rows.Close()
	if r.done != nil {
		_ = r.done(errors.Join(r.err, err)) // the reader already got the error
		r.done = nil
	}
	return err
}
