package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// patient sends statements and waits for each until its context ends. lib/pq then asks the server
// to cancel the statement and goes on reading, and a pooler whose server is gone may answer
// neither. A statement that was given up keeps the connection until the driver returns.
type patient struct {
	conn *sql.Conn
	tx   *sql.Tx // nil without a transaction
	gone bool    // the connection is a given-up statement's, or its driver is broken
}

var _ sqlstore.Conn = (*patient)(nil)

// QueryContext implements sqlstore.Conn.
func (p *patient) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	var rows *sql.Rows
	err := p.wait(ctx, func() (err error) {
		rows, err = p.on().QueryContext(ctx, query, args...) //nolint:rowserrcheck,sqlclosecheck // the caller reads them, or they come too late
		return err
	}, func() {
		if rows != nil {
			_ = rows.Close()
		}
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// ExecContext implements sqlstore.Conn.
func (p *patient) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	var result sql.Result
	err := p.wait(ctx, func() (err error) {
		result, err = p.on().ExecContext(ctx, query, args...)
		return err
	}, func() {})
	if err != nil {
		return nil, err
	}
	return result, nil
}

func (p *patient) on() sqlstore.Conn {
	if p.tx != nil {
		return p.tx
	}
	return p.conn
}

func (p *patient) commit(ctx context.Context) error { return p.wait(ctx, p.tx.Commit, func() {}) }

// wait returns call's error, or that of ctx. In the latter case late runs when call has returned.
func (p *patient) wait(ctx context.Context, call func() error, late func()) error {
	if p.gone {
		return driver.ErrBadConn
	}
	var (
		err    error
		broken bool
	)
	breaks := func(why error) {
		err, broken = why, true
		discard(p.conn)
	}
	answered := await(ctx, waited{
		call:   func() { err = call() },
		broken: breaks,
		late: func() {
			if !broken {
				drive(func() { late(); p.giveBack() }, breaks)
			}
		},
	})
	if !answered {
		p.gone = true
		return fmt.Errorf("a statement was not answered: %w", context.Cause(ctx))
	}
	p.gone = broken
	return err
}

// close ends the transaction, if there is one, and gives the connection back.
func (p *patient) close() {
	if !p.gone {
		p.giveBack()
	}
}

func (p *patient) giveBack() {
	if p.tx != nil {
		_ = p.tx.Rollback()
	}
	_ = p.conn.Close()
}
