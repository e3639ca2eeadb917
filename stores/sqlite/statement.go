package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// session is a handler's access to the writer connection, until the store takes it back. All the
// handler's statements pass through here.
type session struct {
	conn   *conn
	member *member // nil: not in a batch

	// closing says that the handler has ended. From then on the transaction may be ended, by the
	// store or by a goroutine that was left behind, without harm.
	closing atomic.Bool

	// handling interrupts the handler's statements; nil in the store's own transactions.
	handling *handling

	rows    int  // open result sets; guarded by conn.mu
	managed bool // the handler called Commit or Rollback of the *sql.Tx; guarded by conn.mu
}

// use takes the native connection for one call of a handler. The caller unlocks mu.
func (s *session) use() error {
	if s.closing.Load() { // from a goroutine that the handler left behind
		return sql.ErrTxDone
	}
	c := s.conn
	c.mu.Lock()
	switch {
	case c.phase == txOpen && !s.closing.Load():
		return nil
	case c.phase == txEnded: // the statement would run outside the transaction
		c.mu.Unlock()
		return stores.ErrTxEnded
	default:
		c.mu.Unlock()
		return sql.ErrTxDone
	}
}

// inUse reports whether a statement of the closing session is running, or its rows are open.
func (s *session) inUse() bool {
	if !s.conn.mu.TryLock() {
		return true
	}
	defer s.conn.mu.Unlock()
	return s.rows > 0
}

// pass sends one statement of a handler.
func pass[T any](ctx context.Context, s *session, query string, send func(context.Context) (T, error)) (T, error) {
	if err := s.member.admit(query); err != nil {
		return *new(T), err
	}
	if err := s.use(); err != nil {
		return *new(T), err
	}
	c := s.conn
	defer c.mu.Unlock()
	if err := s.member.save(); err != nil {
		return *new(T), err
	}
	c.discard = c.discard || outlivesTransaction(query)
	ctx, done := s.handling.statement(ctx)
	result, err := send(ctx)
	return result, done(err)
}

// ask is pass for a query. Its rows count as in use until they are closed.
func ask(ctx context.Context, s *session, query string, send func(context.Context) (driver.Rows, error)) (driver.Rows, error) {
	return pass(ctx, s, query, func(ctx context.Context) (driver.Rows, error) {
		r, err := send(ctx)
		if err != nil {
			return nil, err
		}
		n, ok := r.(nativeRows)
		if !ok {
			return nil, lacks(r)
		}
		s.rows++
		return &rows{nativeRows: n, session: s}, nil
	})
}

// lacks closes what the driver returned, and says that the driver is unfit.
func lacks(made io.Closer) error {
	return errors.Join(fmt.Errorf("sqlite: the driver's %T lacks what this version needs", made), made.Close())
}

// CheckNamedValue implements driver.NamedValueChecker. It converts as database/sql does. A panic of
// a driver.Valuer becomes an error: after a panic database/sql would keep the transaction, and so
// the writer, locked.
func (s *session) CheckNamedValue(v *driver.NamedValue) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("sqlite: %w", callback.Panicked("a driver.Valuer", r))
		}
	}()
	v.Value, err = driver.DefaultParameterConverter.ConvertValue(v.Value)
	return err
}

// ExecContext implements driver.ExecerContext.
func (s *session) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return pass(ctx, s, query, func(ctx context.Context) (driver.Result, error) { return s.conn.exec(ctx, query, args) })
}

// QueryContext implements driver.QueryerContext.
func (s *session) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return ask(ctx, s, query, func(ctx context.Context) (driver.Rows, error) { return s.conn.query(ctx, query, args) })
}

// PrepareContext implements driver.ConnPrepareContext.
func (s *session) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := s.member.admit(query); err != nil {
		return nil, err
	}
	if err := s.use(); err != nil {
		return nil, err
	}
	c := s.conn
	defer c.mu.Unlock()
	c.discard = c.discard || outlivesTransaction(query)
	prepared, err := c.prepareNative(ctx, query)
	if err != nil {
		return nil, err
	}
	return &statement{preparedStatement: prepared, session: s}, nil
}

// Prepare implements driver.Conn.
func (s *session) Prepare(query string) (driver.Stmt, error) {
	return s.PrepareContext(context.Background(), query)
}

// statement is a handler's prepared statement.
type statement struct {
	preparedStatement
	session *session
}

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return pass(ctx, s.session, "", func(ctx context.Context) (driver.Result, error) { return s.preparedStatement.ExecContext(ctx, args) })
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return ask(ctx, s.session, "", func(ctx context.Context) (driver.Rows, error) { return s.preparedStatement.QueryContext(ctx, args) })
}

func (s *statement) Close() error {
	mu := &s.session.conn.mu
	mu.Lock()
	defer mu.Unlock()
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
	session *session
	closed  bool
}

func (r *rows) Next(dest []driver.Value) error {
	if err := r.session.use(); err != nil {
		return err
	}
	defer r.session.conn.mu.Unlock()
	return r.nativeRows.Next(dest)
}

func (r *rows) Close() error {
	mu := &r.session.conn.mu
	mu.Lock()
	defer mu.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.session.rows--
	return r.nativeRows.Close()
}

// outlivesTransaction reports whether a query may change the connection itself, which no rollback
// undoes: settings, attached databases, temporary tables and triggers (which could even break the
// next claim). It goes by words; a false alarm costs a new connection.
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
