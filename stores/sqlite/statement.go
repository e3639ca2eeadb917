package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// Statements of handlers pass through here.

// use takes the native connection for one call of a handler's. The caller unlocks mu.
func (c *conn) use() error {
	c.mu.Lock()
	switch {
	case c.phase == txOpen && !c.closing.Load():
		return nil
	case c.phase == txEnded: // the statement would run outside of the transaction
		c.mu.Unlock()
		return stores.ErrTxEnded
	default: // a goroutine that the handler has left behind
		c.mu.Unlock()
		return sql.ErrTxDone
	}
}

// pass sends one statement of a handler's.
func pass[T any](ctx context.Context, c *conn, query string, send func(context.Context) (T, error)) (T, error) {
	if err := c.use(); err != nil {
		return *new(T), err
	}
	defer c.mu.Unlock()
	c.discard = c.discard || outlivesTransaction(query)
	ctx, done := c.handling.statement(ctx)
	result, err := send(ctx)
	return result, done(err)
}

// ask is pass of a query, whose rows are counted as in use until they are closed.
func ask(ctx context.Context, c *conn, query string, send func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	return pass(ctx, c, query, func(ctx context.Context) (driver.Rows, error) {
		r, err := send(ctx)
		if err != nil {
			return nil, err
		}
		n, ok := r.(nativeRows)
		if !ok {
			return nil, lacks(r)
		}
		c.rows++
		return &rows{nativeRows: n, conn: c}, nil
	})
}

// lacks closes what the driver has made, and refuses the driver for it.
func lacks(made io.Closer) error {
	return errors.Join(fmt.Errorf("sqlite: the driver's %T lacks what this version needs", made), made.Close())
}

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return pass(ctx, c, query, func(ctx context.Context) (driver.Result, error) { return c.native.ExecContext(ctx, query, args) })
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return ask(ctx, c, query, func(ctx context.Context) (driver.Rows, error) { return c.native.QueryContext(ctx, query, args) })
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := c.use(); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	c.discard = c.discard || outlivesTransaction(query)
	prepared, err := c.prepareNative(ctx, query)
	if err != nil {
		return nil, err
	}
	return &statement{preparedStatement: prepared, conn: c}, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// Begin implements driver.Conn; database/sql calls BeginTx.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// statement is prepared by a handler.
type statement struct {
	preparedStatement
	conn *conn
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return pass(ctx, s.conn, "", func(ctx context.Context) (driver.Result, error) { return s.preparedStatement.ExecContext(ctx, args) })
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return ask(ctx, s.conn, "", func(ctx context.Context) (driver.Rows, error) { return s.preparedStatement.QueryContext(ctx, args) })
}

func (s *statement) Close() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.preparedStatement.Close()
}

type nativeRows interface {
	driver.Rows
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
	driver.RowsColumnTypeScanType
}

// rows are the result of a handler's query.
type rows struct {
	nativeRows
	conn   *conn
	closed bool
}

func (r *rows) Next(dest []driver.Value) error {
	if err := r.conn.use(); err != nil {
		return err
	}
	defer r.conn.mu.Unlock()
	return r.nativeRows.Next(dest)
}

func (r *rows) Close() error {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.conn.rows--
	return r.nativeRows.Close()
}

// outlivesTransaction reports whether a query may change the connection itself, which
// no rollback undoes: settings, attached databases, temporary tables and triggers (one
// of those could even stand in the way of the next claim). It goes by words, so it may
// err towards true, which costs a new connection.
func outlivesTransaction(query string) bool {
	for start := 0; start < len(query); {
		if !isWordByte(query[start]) {
			start++
			continue
		}
		end := start + 1
		for end < len(query) && isWordByte(query[end]) {
			end++
		}
		switch query[start] | 0x20 { // most words end here
		case 'p', 'a', 'd', 't':
			switch word := query[start:end]; {
			case strings.EqualFold(word, "PRAGMA"),
				strings.EqualFold(word, "ATTACH"), strings.EqualFold(word, "DETACH"),
				strings.EqualFold(word, "TEMP"), strings.EqualFold(word, "TEMPORARY"):
				return true
			}
		}
		start = end
	}
	return false
}

func isWordByte(b byte) bool {
	return b >= 0x80 || b == '_' || b == '$' || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z'
}
