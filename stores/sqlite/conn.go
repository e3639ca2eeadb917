package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// conn is the writer connection. Handlers reach it through their *sql.Tx and can send it any SQL,
// so the connection itself keeps the promise: only commit commits, and only if the transaction is
// still the one that begin started.
type conn struct {
	native native
	texts  *[preparedStatements]string

	// session is the transaction's session. BeginTx sets it, and whoever holds the transaction
	// reads it.
	*session

	// mu is held while the native connection is in use, during which SQLite calls the hooks. It
	// guards the fields below.
	mu         sync.Mutex
	prepared   [preparedStatements]preparedStatement
	kept       keptStatements
	inMemory   bool // temporary storage is in memory
	phase      phase
	committing bool // commit runs, so the hook allows a commit
	passed     bool // the hook has allowed it: from here on SQLite may have committed
	discard    bool // close the connection instead of reusing it
}

var (
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.Validator          = (*conn)(nil)
)

// phase is the state of the transaction.
type phase uint8

const (
	txIdle  phase = iota // none, or the store ended it
	txOpen               // the one that begin started
	txEnded              // the handler ended it, whatever runs now
)

type preparedStatement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// newConn guards a connection. It sets the hooks last, because the setup needs commits.
func newConn(n native, texts *[preparedStatements]string) *conn {
	c := &conn{native: n, texts: texts}
	c.session = &session{conn: c}
	n.RegisterCommitHook(c.onCommit)
	n.RegisterRollbackHook(c.onRollback)
	return c
}

// onCommit is called by SQLite before every commit of a write. A result other than 0 turns the
// commit into a rollback.
func (c *conn) onCommit() int32 {
	if !c.committing {
		return 1
	}
	c.passed = true
	return 0
}

// onRollback is called by SQLite whenever a transaction ends without a commit: by SQL, INSERT OR
// ROLLBACK, an interrupted write, a full disk or a vetoed commit.
func (c *conn) onRollback() {
	if c.phase == txOpen {
		c.phase = txEnded
	}
}

// beginning describes how a transaction of the store begins.
type beginning struct {
	decide   func(*conn) error // runs the first statement; nil: none
	inMemory bool              // see conn.keepInMemory
	conn     *conn             // the result
}

// detached carries a beginning to the connection. It is never canceled, because database/sql would
// roll back a transaction whose context ends.
type detached struct {
	context.Context
	begin *beginning
}

type beginningKey struct{}

func (d detached) Value(key any) any {
	if _, ok := key.(beginningKey); ok {
		return d.begin
	}
	return d.Context.Value(key)
}

// BeginTx implements driver.ConnBeginTx. It never waits: while another process writes, SQLite
// answers BUSY at once.
func (c *conn) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	b, ok := ctx.Value(beginningKey{}).(*beginning)
	if !ok {
		return nil, errors.New("sqlite: only the store begins transactions on the writer connection")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.keepInMemory(b.inMemory); err != nil {
		return nil, err
	}
	if err := c.run(beginStatement); err != nil {
		c.discard = !isCode(err, sqlite3.SQLITE_BUSY)
		return nil, err
	}
	c.phase, c.passed, c.session = txOpen, false, &session{conn: c}
	if b.decide != nil {
		if err := b.decide(c); err != nil {
			c.rollback()
			return nil, err
		}
	}
	b.conn = c
	return transaction{c}, nil
}

// keepInMemory sets where the next transaction has its temporary storage. Behind a savepoint SQLite
// copies each page before the first change. By default each savepoint allocates 64 KiB for that before
// anything is spilled to a file, which takes longer than the statements of a lean handler; in memory
// it allocates as much as it needs.
func (c *conn) keepInMemory(yes bool) error {
	if c.inMemory == yes {
		return nil
	}
	where := "PRAGMA temp_store = DEFAULT"
	if yes {
		where = "PRAGMA temp_store = MEMORY"
	}
	if _, err := c.native.ExecContext(context.Background(), where, nil); err != nil {
		return err
	}
	c.inMemory = yes
	return nil
}

// Begin implements driver.Conn; database/sql calls BeginTx.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// commit writes the staged statements, and commits the transaction that begin started. The error
// wraps stores.ErrNotCommitted or stores.ErrCommitUnknown, as Attempt.Commit promises. After
// ErrTxBusy the transaction must still be rolled back.
func (c *conn) commit(staged []sqlstore.Statement) error {
	c.closing.Store(true)
	if !c.mu.TryLock() {
		return pkg.NotCommitted(stores.ErrTxBusy)
	}
	defer c.mu.Unlock()
	c.handling.end()
	switch {
	case c.phase != txOpen:
		return pkg.NotCommitted(c.endedBy())
	case c.rows > 0:
		return pkg.NotCommitted(stores.ErrTxBusy)
	}
	return c.commitAfter(c.emit(staged))
}

// commitAfter commits an open transaction, unless its last write failed.
func (c *conn) commitAfter(err error) error {
	if err == nil {
		c.committing = true
		err = c.run(commitStatement)
		c.committing = false
	}
	if err == nil {
		c.phase = txIdle
		return nil
	}
	// If the hook was not reached, SQLite refused: a deferred constraint, or a locked attached
	// database. After the hook, a failed write or fsync may leave a complete transaction in the log
	// for the next recovery to find, although SQLite itself has rolled back.
	if c.rollback() && !c.passed {
		return pkg.NotCommitted(err)
	}
	c.discard = true
	return pkg.CommitUnknown(err)
}

// emit sends statements that return no rows.
func (c *conn) emit(staged []sqlstore.Statement) error {
	for _, s := range staged {
		args := make([]driver.NamedValue, len(s.Args))
		for i, arg := range s.Args {
			args[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
		}
		if _, err := c.exec(context.Background(), s.Text, args); err != nil {
			return err
		}
	}
	return nil
}

// rollback ends any open transaction, including one that a handler began, and reports whether it is
// known to be over. After an error the connection is closed, which ends everything.
func (c *conn) rollback() bool {
	if c.phase == txIdle {
		return true
	}
	over := c.phase == txEnded
	c.phase = txIdle
	err := c.run(rollbackStatement)
	c.discard = c.discard || err != nil
	return over || err == nil
}

// endedBy returns how the handler ended the transaction.
func (s *session) endedBy() error {
	if s.managed {
		return fmt.Errorf("%w: %w", stores.ErrTxEnded, stores.ErrTxManaged)
	}
	return stores.ErrTxEnded
}

// close ends the handler's use of the connection. It interrupts a statement that one of its
// goroutines still runs, because nothing will be committed. It returns how the handler ended the
// transaction, or nil if it did not, or if one of its goroutines still uses the connection.
func (c *conn) close() error {
	c.closing.Store(true)
	if !c.mu.TryLock() {
		c.handling.leave()
		return nil
	}
	defer c.mu.Unlock()
	c.handling.end()
	if c.phase != txOpen {
		return c.endedBy()
	}
	return nil
}

// transaction is the transaction that database/sql sees. It only ever ends without a commit: the
// store ends the real one first.
type transaction struct{ conn *conn }

func (t transaction) Commit() error {
	t.end()
	return stores.ErrTxManaged
}

func (t transaction) Rollback() error {
	if t.end() {
		return stores.ErrTxManaged
	}
	return nil
}

// end rolls back and reports whether the handler asked for it.
func (t transaction) end() (handler bool) {
	c := t.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	handler = !c.closing.Load()
	c.rollback()
	c.managed = c.managed || handler
	return handler
}

// run executes a prepared statement.
func (c *conn) run(which int, args ...driver.Value) error {
	_, err := c.change(which, args...)
	return err
}

// change is run for a statement whose number of changed rows matters.
func (c *conn) change(which int, args ...driver.Value) (int64, error) {
	s, err := c.prepare(which)
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(context.Background(), named(args...))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// first reads a query's first row, if there is one.
func (c *conn) first(which int, into []driver.Value, args ...driver.Value) (found bool, err error) {
	s, err := c.prepare(which)
	if err != nil {
		return false, err
	}
	rows, err := s.QueryContext(context.Background(), named(args...))
	if err != nil {
		return false, err
	}
	switch err = rows.Next(into); {
	case err == nil:
		found = true
	case errors.Is(err, io.EOF):
		err = nil
	}
	return found, errors.Join(err, rows.Close())
}

func (c *conn) prepare(which int) (s preparedStatement, err error) {
	if c.prepared[which] == nil {
		if s, err = c.prepareNative(context.Background(), c.texts[which]); err != nil {
			return nil, err
		}
		c.prepared[which] = s
	}
	return c.prepared[which], nil
}

func (c *conn) prepareNative(ctx context.Context, query string) (preparedStatement, error) {
	s, err := c.native.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if p, ok := s.(preparedStatement); ok {
		return p, nil
	}
	return nil, lacks(s)
}

func named(args ...driver.Value) []driver.NamedValue {
	values := make([]driver.NamedValue, len(args))
	for i, arg := range args {
		values[i] = driver.NamedValue{Ordinal: i + 1, Value: arg}
	}
	return values
}

// Close implements driver.Conn. It closes the statements first: until the last one is closed,
// SQLite keeps the connection and its transaction.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := []error{c.kept.close()}
	for i, s := range c.prepared {
		if s != nil {
			errs = append(errs, s.Close())
			c.prepared[i] = nil
		}
	}
	c.native.RegisterCommitHook(nil)
	c.native.RegisterRollbackHook(nil)
	return errors.Join(append(errs, c.native.Close())...)
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.discard {
		return driver.ErrBadConn
	}
	return c.native.ResetSession(ctx)
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.discard && c.native.IsValid()
}
