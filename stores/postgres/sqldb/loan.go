package sqldb

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// loan is a member's connection as database/sql sees it.
type loan struct {
	sqltx.Loan

	conn   *conn
	member *member
}

var (
	_ driver.ConnBeginTx        = loan{}
	_ driver.ExecerContext      = loan{}
	_ driver.QueryerContext     = loan{}
	_ driver.ConnPrepareContext = loan{}
	_ driver.NamedValueChecker  = loan{}
)

// endByHandler dooms a run that is not over.
func (m *member) endByHandler() error {
	if m.Over() {
		return nil
	}
	m.Doom(stores.ErrTxManaged)
	return stores.ErrTxManaged
}

// CheckNamedValue implements driver.NamedValueChecker.
func (l loan) CheckNamedValue(v *driver.NamedValue) error { return l.conn.CheckNamedValue(v) }

// ExecContext implements driver.ExecerContext. The member's savepoint is sent with its first
// statement.
func (l loan) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if !l.member.Saving() || hasOptions(args) {
		if err := l.save(ctx, query); err != nil {
			return nil, err
		}
		return l.conn.exec(ctx, l.member, query, args)
	}
	return watched(l.conn, l.member, query, func() (driver.Result, error) {
		var batch pgx.Batch
		batch.Queue(claimtx.Savepoint)
		values := make([]any, len(args))
		for i := range args {
			values[i] = args[i].Value
		}
		batch.Queue(query, values...)
		tag, err := l.ride(ctx, &batch)
		if err != nil && pgconn.SafeToRetry(err) {
			return nil, driver.ErrBadConn
		}
		return driver.RowsAffected(tag.RowsAffected()), err
	})
}

func (l loan) ride(ctx context.Context, batch *pgx.Batch) (tag pgconn.CommandTag, err error) {
	results := l.conn.Conn().SendBatch(ctx, batch)
	if _, err = results.Exec(); err == nil {
		l.member.Saved()
		tag, err = results.Exec()
	}
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tag, err
}

// hasOptions reports whether arguments begin with an option for pgx's driver.
func hasOptions(args []driver.NamedValue) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].Value.(type) {
	case pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryExecMode, pgx.QueryRewriter:
		return true
	}
	return false
}

// save makes the savepoint in a separate round trip, where it cannot be sent with a statement: the
// driver returns rows only for a single query.
func (l loan) save(ctx context.Context, query string) error {
	if !l.member.Saving() {
		return nil
	}
	if err := l.member.Admit(query); err != nil { // check first, so that no savepoint is sent for nothing
		return err
	}
	_, err := l.conn.Conn().Exec(ctx, claimtx.Savepoint)
	if err == nil {
		l.member.Saved()
	}
	l.member.Release(err)
	return err
}

// QueryContext implements driver.QueryerContext.
func (l loan) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Rows, err error) {
	defer recovered(&err)
	if err := l.save(ctx, query); err != nil {
		return nil, err
	}
	return l.conn.query(ctx, l.member, query, args)
}

// PrepareContext implements driver.ConnPrepareContext. The driver chooses the statement's name.
func (l loan) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if err := l.save(ctx, query); err != nil {
		return nil, err
	}
	return l.conn.prepare(ctx, l.member, l, query)
}

// Prepare implements driver.Conn.
func (l loan) Prepare(query string) (driver.Stmt, error) {
	return l.PrepareContext(context.Background(), query)
}
