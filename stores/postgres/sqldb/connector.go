package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// NewConnector returns a connector of pgx's database/sql driver. Its transactions can begin
// together with a claim, and are watched while they hold one. Otherwise its connections behave like
// pgx's, but sql.Conn.Raw hands out a value with a method Conn() *pgx.Conn, not a *stdlib.Conn.
//
//	db := sql.OpenDB(sqldb.NewConnector(config))
func NewConnector(config *pgx.ConnConfig, options ...stdlib.OptionOpenDB) driver.Connector {
	return &connector{inner: stdlib.GetConnector(*config.Copy(), options...)}
}

type connector struct {
	inner  driver.Connector
	pooled bool // behind a pooler in transaction mode
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	std, ok := inner.(*stdlib.Conn)
	if !ok {
		_ = inner.Close()
		return nil, fmt.Errorf("sqldb: the driver's connection is a %T", inner)
	}
	return &conn{stdConn: std}, nil
}

// Driver implements driver.Connector. New recognizes the connector by it.
func (c *connector) Driver() driver.Driver { return connectorDriver{c} }

type connectorDriver struct{ connector *connector }

// Open implements driver.Driver. Connectors do not use it.
func (connectorDriver) Open(string) (driver.Conn, error) {
	return nil, errors.New("sqldb: use sql.OpenDB with the connector")
}

// stdConn keeps the field's name apart from its method Conn.
type stdConn = stdlib.Conn

// conn is a connection of our connector. Like every driver.Conn it is used by one goroutine at a
// time, except by the attempt that holds it (see attempt).
type conn struct {
	*stdConn

	held  *attempt    // the attempt that holds the connection
	stale atomic.Bool // it could not be cleaned up
}

var (
	_ driver.Validator          = (*conn)(nil)
	_ driver.SessionResetter    = (*conn)(nil)
	_ driver.ConnBeginTx        = (*conn)(nil)
	_ driver.ExecerContext      = (*conn)(nil)
	_ driver.QueryerContext     = (*conn)(nil)
	_ driver.ConnPrepareContext = (*conn)(nil)
	_ driver.NamedValueChecker  = (*conn)(nil)
	_ driver.Pinger             = (*conn)(nil)
)

// IsValid implements driver.Validator. A connection whose session may have changed is closed.
func (c *conn) IsValid() bool {
	pg := c.Conn().PgConn()
	return !c.stale.Load() && !pg.IsClosed() && !pg.IsBusy() && pg.TxStatus() == 'I'
}

// holder is the attempt or member that uses the connection and watches its statements.
type holder interface {
	Admit(query string) error
	Acquire() error
	Release(err error)
}

// holder returns the holder, or nil.
func (c *conn) holder() holder {
	if c.held == nil {
		return nil
	}
	return c.held
}

// watched sends a statement and tells its holder.
func watched[T any](c *conn, held holder, query string, send func() (T, error)) (T, error) {
	if held == nil {
		return send()
	}
	if err := held.Admit(query); err != nil {
		return *new(T), err
	}
	result, err := send()
	err = c.unlessBusy(err)
	held.Release(err)
	return result, err
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(ctx, c.holder(), query, args)
}

func (c *conn) exec(ctx context.Context, held holder, query string, args []driver.NamedValue) (driver.Result, error) {
	return watched(c, held, query, func() (driver.Result, error) { return c.stdConn.ExecContext(ctx, query, args) })
}

// unlessBusy replaces the driver's error for a lost connection if rows are open on the connection.
func (c *conn) unlessBusy(err error) error {
	if errors.Is(err, driver.ErrBadConn) && isBusy(c.Conn()) {
		return errRowsOpen
	}
	return err
}

func isBusy(conn *pgx.Conn) bool { return !conn.PgConn().IsClosed() && conn.PgConn().IsBusy() }

var errRowsOpen = fmt.Errorf("sqldb: rows of another statement are open: close them first: %w", stores.ErrTxBusy)

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.query(ctx, c.holder(), query, args)
}

func (c *conn) query(ctx context.Context, held holder, query string, args []driver.NamedValue) (_ driver.Rows, err error) {
	if held == nil {
		return c.stdConn.QueryContext(ctx, query, args)
	}
	defer recovered(&err)
	if err := held.Admit(query); err != nil {
		return nil, err
	}
	inner, err := c.stdConn.QueryContext(ctx, query, args)
	std, ok := inner.(*stdlib.Rows)
	if err == nil && !ok {
		err = errors.Join(fmt.Errorf("sqldb: the driver's rows are a %T", inner), inner.Close())
	}
	if err != nil {
		err = c.unlessBusy(err)
		held.Release(err)
		return nil, err
	}
	return &rows{Rows: std, held: held}, nil
}

// recovered turns a panic in a handler's query, from a tracer or an argument, into an error: after
// a panic database/sql would keep the transaction locked. The statement stays in use, so nothing is
// committed, and the connection is closed.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("sqldb: %w", callback.Panicked("the driver", r))
	}
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.prepare(ctx, c.holder(), c, query)
}

// runner runs a prepared statement by its text, under which pgx has it prepared.
type runner interface {
	driver.ExecerContext
	driver.QueryerContext
}

func (c *conn) prepare(ctx context.Context, held holder, by runner, query string) (driver.Stmt, error) {
	inner, err := watched(c, held, query, func() (driver.Stmt, error) { return c.stdConn.PrepareContext(ctx, query) })
	if err != nil {
		return nil, err
	}
	std, ok := inner.(*stdlib.Stmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqldb: the driver's statement is a %T", inner), inner.Close())
	}
	return &stmt{Stmt: std, runner: by, conn: c, held: held, text: query}, nil
}

// rows count as in use until they are closed.
type rows struct {
	*stdlib.Rows

	held   holder
	closed bool
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	err := r.Rows.Close()
	if !r.closed {
		r.closed = true
		r.held.Release(err)
	}
	return err
}

// stmt runs by its text, so that it is watched as well.
type stmt struct {
	*stdlib.Stmt

	runner runner
	conn   *conn
	held   holder // the holder that prepared it; nil: none
	text   string
}

var (
	_ driver.StmtExecContext  = (*stmt)(nil)
	_ driver.StmtQueryContext = (*stmt)(nil)
)

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.runner.ExecContext(ctx, s.text, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.runner.QueryContext(ctx, s.text, args)
}

// Close implements driver.Stmt.
func (s *stmt) Close() error {
	held := s.held
	m, lent := held.(*member)
	if !lent { // the connection may belong to another attempt by now
		held = s.conn.holder()
	}
	switch {
	case lent && m.batch.idle.Load():
		m.batch.closing.Lock() // other members' goroutines may close theirs
		defer m.batch.closing.Unlock()
		return s.Stmt.Close()
	case held == nil:
		return s.Stmt.Close()
	}
	if held.Acquire() != nil {
		s.conn.stale.Store(true) // the attempt is ending on this connection
		return nil               // and what is not closed goes with it
	}
	err := s.Stmt.Close()
	held.Release(err)
	return err
}

// heldTx is what database/sql ends when the handler calls Commit or Rollback, or after the attempt
// has ended the transaction itself.
type heldTx struct{ attempt *attempt }

// Commit implements driver.Tx.
func (t heldTx) Commit() error { return t.end() }

// Rollback implements driver.Tx.
func (t heldTx) Rollback() error { return t.end() }

// refuseTimeout bounds the rollback of a transaction that its handler ended.
const refuseTimeout = 10 * time.Second

func (t heldTx) end() error {
	t.attempt.ending.Lock()
	defer t.attempt.ending.Unlock()
	t.attempt.conn.held = nil
	if t.attempt.Over() {
		return nil
	}
	// The connection returns to database/sql now, whatever the result.
	ctx, cancel := context.WithTimeout(context.Background(), refuseTimeout)
	defer cancel()
	if t.attempt.Refuse(ctx) == claimtx.InUse {
		t.attempt.cut()
	}
	return stores.ErrTxManaged
}
