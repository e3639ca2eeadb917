package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	mysql "github.com/go-sql-driver/mysql"
)

// statement is a handler's prepared statement, whose text was checked when it was prepared.
type statement struct {
	nativeStatement

	tx      *transaction
	text    string
	conduct conduct
}

type nativeStatement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

func asNative(prepared driver.Stmt) (nativeStatement, error) {
	n, ok := prepared.(nativeStatement)
	if !ok {
		return nil, errors.Join(fmt.Errorf("mysql: the driver's %T lacks what this version needs", prepared), prepared.Close())
	}
	return n, nil
}

func (s *statement) acquire() error {
	if s.conduct == unclear {
		s.tx.distrust()
	}
	return s.tx.acquire()
}

// Close implements driver.Stmt. database/sql does not report its errors.
func (s *statement) Close() error {
	s.tx.conn.sending.Lock()
	defer s.tx.conn.sending.Unlock()
	if s.tx.shared && s.tx.gate.Closed() { // another member may use the connection
		s.tx.conn.left = append(s.tx.conn.left, s.nativeStatement)
		return nil
	}
	err := closeStatement(s.nativeStatement)
	if errors.Is(err, driver.ErrBadConn) && !s.tx.gate.Closed() {
		s.tx.gate.Judge(func(first error) error { return s.tx.judge(first, err) })
	}
	return err
}

// closeLeft closes what members of a batch left prepared, while nobody uses the connection. Anyone
// who is closing such a statement is done when it returns.
func (c *conn) closeLeft() (err error) {
	c.sending.Lock()
	defer c.sending.Unlock()
	for _, s := range c.left {
		err = errors.Join(err, closeStatement(s))
	}
	c.left = nil
	return err
}

// closeStatement returns nil if the connection was lost before, and an error that wraps
// driver.ErrBadConn if it is lost now: the driver returns another one.
func closeStatement(s driver.Stmt) error {
	err := s.Close()
	if err != nil && !errors.Is(err, mysql.ErrBusyBuffer) {
		err = errors.Join(driver.ErrBadConn, err)
	}
	return err
}

// ExecContext implements driver.StmtExecContext.
func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	return pass(ctx, s.tx, s.text, func(ctx context.Context) (driver.Result, error) { return s.nativeStatement.ExecContext(ctx, args) })
}

// QueryContext implements driver.StmtQueryContext.
func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	return ask(ctx, s.tx, func(ctx context.Context) (driver.Rows, error) { return s.nativeStatement.QueryContext(ctx, args) })
}

// isEOF reports the end of rows, which is no error.
func isEOF(err error) bool { return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) }
