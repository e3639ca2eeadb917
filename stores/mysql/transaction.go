package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// transaction is one on a connection of the store's own, from its claim to its end. A
// handler may leave goroutines and rows behind; they must never touch the connection
// once it belongs to somebody else, so its use is counted.
type transaction struct {
	conn *conn

	// Ends every statement that runs, by closing the connection. Made when first needed.
	ctx    context.Context
	cancel context.CancelFunc

	suspect atomic.Bool // a statement went through that may have ended it
	loose   atomic.Bool // and that was after the server may have ended it

	mu      sync.Mutex
	over    bool  // no statement may begin
	using   int   // statements and rows in use
	managed bool  // the handler called Commit or Rollback, by text or by the *sql.Tx
	ended   bool  // on the server, as far as is known
	failure error // of the first statement that failed and was not undone since
	renewed bool  // a savepoint was set after that
}

func newTransaction(c *conn) *transaction {
	t := &transaction{conn: c}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// acquire notes that the connection is used until release.
func (t *transaction) acquire() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return sql.ErrTxDone
	}
	if t.ended {
		return stores.ErrTxEnded
	}
	t.using++
	return nil
}

func (t *transaction) release(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.using--
	t.fail(err)
}

// fail keeps the first error of a statement, and of those that the database is to blame
// for the first before any other; t.mu is held.
func (t *transaction) fail(err error) {
	if err == nil || errors.Is(err, driver.ErrSkip) || t.over { // afterwards it is our own doing
		return
	}
	if t.failure == nil || interruption(err) && !interruption(t.failure) {
		t.failure, t.renewed = err, false
	}
}

// passed takes the text of a statement that was successful: ROLLBACK TO a savepoint that is
// older than a failure has undone that, unless the transaction had ended with it.
func (t *transaction) passed(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		return
	}
	switch w := (words{rest: text}); w.next() {
	case "SAVEPOINT":
		t.renewed = true
	case "ROLLBACK": // judge has let no other through
		if !t.renewed && undone(t.failure) {
			t.failure = nil
		}
	}
}

// refuse notes that the handler has asked for what it must not.
func (t *transaction) refuse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.managed = true
}

// close lets no more statements pass. idle is false if some still run.
func (t *transaction) close() (idle bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	return t.using == 0
}

// statement returns the context for a statement that was sent with ctx: that of the
// transaction, which ends when ctx ends while the statement runs, for the driver closes
// the connection then. done is told what became of it, and returns what to say.
func (t *transaction) statement(ctx context.Context) (running context.Context, done func(error) error) {
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, t.cut)
	}
	return t.ctx, func(err error) error {
		stop()
		switch {
		case errors.Is(err, driver.ErrBadConn) && t.shared():
			err = errRowsOpen
		case !errors.Is(err, context.Canceled):
		case ctx.Err() != nil:
			err = ctx.Err()
		default:
			err = errCut
		}
		t.release(err)
		return err
	}
}

// shared reports whether rows of another statement are open, beside the one that runs. The
// driver calls that a lost connection.
func (t *transaction) shared() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.using > 1
}

var errRowsOpen = fmt.Errorf("mysql: rows of another statement are open: close them first: %w", stores.ErrTxBusy)

// errCut: the driver only says that the context of the transaction has ended.
var errCut = fmt.Errorf("mysql: the connection was closed, for the context of another statement or the attempt has ended: %w", context.Canceled)

// cut closes the connection under a statement that still runs; the server rolls back.
func (t *transaction) cut() {
	t.conn.discard.Store(true)
	t.cancel()
}

// send sends a statement of the store's after close, when nobody else can.
func (t *transaction) send(ctx context.Context, text string) (affected int64, err error) {
	t.conn.sending.Lock()
	defer t.conn.sending.Unlock()
	affected, err = execText(ctx, t.conn.native, text)
	return affected, t.conn.lost(err)
}

// complete sends the guarded completion with COMMIT as a statement that the connection
// has prepared. It returns errNotPrepared where it has to be sent as text: on MySQL, and
// where the claim may be another transaction's by now, or the session changed.
func (t *transaction) complete(ctx context.Context, texts *texts, c *claimed) error {
	if _, _, failure := t.state(); failure != nil || t.suspect.Load() || !texts.maria {
		return errNotPrepared
	}
	t.conn.sending.Lock()
	defer t.conn.sending.Unlock()
	_, err := t.conn.completing.exec(ctx, t.conn.native, texts.completion, c.consumer, c.id, c.token)
	if errors.Is(err, errNotPrepared) {
		return err
	}
	return t.conn.lost(err)
}

// distrust notes a statement that may have ended the transaction.
func (t *transaction) distrust() {
	t.suspect.Store(true)
	if _, _, failure := t.state(); failure != nil {
		t.loose.Store(true)
	}
}

// finished notes that the server has ended the transaction.
func (t *transaction) finished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over, t.ended = true, true
	t.cancel()
}

// state returns how the handler has used the transaction so far.
func (t *transaction) state() (managed, ended bool, failure error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.managed, t.ended, t.failure
}

// Commit implements driver.Tx, for a handler that calls Commit of its *sql.Tx.
func (t *transaction) Commit() error { return t.endByHandler() }

// Rollback implements driver.Tx. The store calls it when the transaction has ended.
func (t *transaction) Rollback() error {
	t.mu.Lock()
	over := t.over
	t.mu.Unlock()
	if over {
		return nil
	}
	return t.endByHandler()
}

// endByHandler rolls back, whatever the handler wanted: its transaction is over. If that
// may not be the one any more that holds the claim, the attempt looks before it does.
func (t *transaction) endByHandler() error {
	t.mu.Lock()
	already := t.ended || t.over
	t.managed = true
	t.over = t.over || t.suspect.Load()
	already = already || t.over
	t.mu.Unlock()
	if already {
		return stores.ErrTxManaged
	}
	_, err := t.send(context.Background(), "ROLLBACK")
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	if err != nil {
		t.conn.discard.Store(true)
	}
	return stores.ErrTxManaged
}

// rows are in use until they are closed.
type rows struct {
	driver.Rows
	done func(error) error
	err  error
}

// newRows passes on that there are more result sets, and what columns are.
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
		_ = r.done(errors.Join(r.err, err)) // the reader was told
		r.done = nil
	}
	return err
}
