package postgres

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores"
)

// TxFromContext returns the transaction that holds the claim, for use in a handler
// with the context of its message. It reports false if there is no inbox on a
// Postgres store around the handler.
//
// The transaction is used like any pgx.Tx, savepoints (Begin, pgx.BeginFunc)
// included. Its Commit and Rollback return stores.ErrTxManaged, as does SQL that
// would end it, and the attempt then cannot be committed. After the handler has
// returned all its methods return pgx.ErrTxClosed.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	a, ok := ctx.Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, false
	}
	return &a.tx, true
}

// Handler adapts a function that wants the transaction to a handler for
// Router.AddConsumerHandler. It returns stores.ErrNoTx without an inbox on a
// Postgres store around it, and stores.ErrReentered when it is run twice in one
// attempt.
func Handler(f func(ctx context.Context, tx pgx.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		a, ok := msg.Context().Value(attemptKey{}).(*attempt)
		if !ok {
			return stores.ErrNoTx
		}
		if err := a.entry.Enter(); err != nil {
			return err
		}
		return f(msg.Context(), &a.tx, msg)
	}
}

// managedTx is the pgx.Tx that handlers get: the transaction of an attempt, or a
// savepoint in it.
type managedTx struct {
	attempt   *attempt
	tx        pgx.Tx
	savepoint bool
}

var _ pgx.Tx = (*managedTx)(nil)

func (t *managedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.attempt.acquire(); err != nil {
		return nil, err
	}
	tx, err := t.tx.Begin(ctx)
	t.attempt.release(err)
	if err != nil {
		return nil, err
	}
	return &managedTx{attempt: t.attempt, tx: tx, savepoint: true}, nil
}

func (t *managedTx) Commit(ctx context.Context) error   { return t.finish(ctx, pgx.Tx.Commit) }
func (t *managedTx) Rollback(ctx context.Context) error { return t.finish(ctx, pgx.Tx.Rollback) }

func (t *managedTx) finish(ctx context.Context, end func(pgx.Tx, context.Context) error) error {
	if err := t.attempt.acquire(); err != nil {
		return err
	}
	var err error
	defer func() { t.attempt.release(err) }()
	if !t.savepoint {
		t.attempt.entry.Doom(stores.ErrTxManaged)
		return stores.ErrTxManaged
	}
	err = end(t.tx, ctx)
	return err
}

// admit lets a statement of the handler pass, unless it would end the transaction.
func (t *managedTx) admit(sql string, args []any) error {
	control, several := transactionControl(sql)
	if control {
		t.attempt.entry.Doom(stores.ErrTxManaged)
		return stores.ErrTxManaged
	}
	if several || rewritten(args) {
		t.attempt.distrust()
	}
	return t.attempt.acquire()
}

// rewritten reports whether the statement that is sent may not be the one we see.
func rewritten(args []any) bool {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
		case pgx.QueryRewriter:
			return true
		}
	}
	return false
}

func (t *managedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.admit(sql, args); err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.tx.Exec(ctx, sql, args...)
	t.attempt.release(err)
	return tag, err
}

func (t *managedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.admit(sql, args); err != nil {
		return failedRows(sql, err), err
	}
	rows, err := t.tx.Query(ctx, sql, args...)
	if err != nil {
		t.attempt.release(err)
		return rows, err
	}
	return &managedRows{Rows: rows, attempt: t.attempt}, nil
}

func (t *managedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.admit(sql, args); err != nil {
		return failedRow{err}
	}
	return &managedRow{row: t.tx.QueryRow(ctx, sql, args...), attempt: t.attempt}
}

func (t *managedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, query := range b.QueuedQueries {
		control, several := transactionControl(query.SQL)
		if control {
			t.attempt.entry.Doom(stores.ErrTxManaged)
			return pgx.FailedBatchResults(b, stores.ErrTxManaged)
		}
		if several || rewritten(query.Arguments) {
			t.attempt.distrust()
		}
	}
	if err := t.attempt.acquire(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &managedBatch{BatchResults: t.tx.SendBatch(ctx, b), attempt: t.attempt}
}

func (t *managedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.attempt.acquire(); err != nil {
		return 0, err
	}
	n, err := t.tx.CopyFrom(ctx, table, columns, src)
	t.attempt.release(err)
	return n, err
}

func (t *managedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.admit(sql, nil); err != nil {
		return nil, err
	}
	description, err := t.tx.Prepare(ctx, name, sql)
	t.attempt.release(err)
	return description, err
}

// LargeObjects bypasses the bookkeeping, so the commit checks whose transaction it is.
func (t *managedTx) LargeObjects() pgx.LargeObjects {
	t.attempt.distrust()
	return t.tx.LargeObjects()
}

// Conn bypasses the bookkeeping, so the commit checks whose transaction it is.
func (t *managedTx) Conn() *pgx.Conn {
	t.attempt.distrust()
	return t.tx.Conn()
}

// managedRows are in use until they are closed, which reading to the end does.
type managedRows struct {
	pgx.Rows
	attempt *attempt
	closed  bool
}

func (r *managedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.done()
	return false
}

// Scan and Values close the rows when they fail.

func (r *managedRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.done()
	}
	return err
}

func (r *managedRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.done()
	}
	return values, err
}

func (r *managedRows) Close() {
	r.Rows.Close()
	r.done()
}

func (r *managedRows) done() {
	if !r.closed {
		r.closed = true
		r.attempt.release(r.Err())
	}
}

func (r *managedRows) Conn() *pgx.Conn {
	r.attempt.distrust()
	return r.Rows.Conn()
}

type managedRow struct {
	row     pgx.Row
	attempt *attempt
	scanned bool
}

func (r *managedRow) Scan(dest ...any) error {
	err := r.row.Scan(dest...)
	if !r.scanned {
		r.scanned = true
		if errors.Is(err, pgx.ErrNoRows) {
			r.attempt.release(nil) // an answer, not a failure
		} else {
			r.attempt.release(err)
		}
	}
	return err
}

type managedBatch struct {
	pgx.BatchResults
	attempt *attempt
	closed  bool
}

func (b *managedBatch) Close() error {
	err := b.BatchResults.Close()
	if !b.closed {
		b.closed = true
		b.attempt.release(err)
	}
	return err
}

// failedRow is the row of a statement that was not sent.
type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// failedRows are closed rows that report err.
func failedRows(sql string, err error) pgx.Rows {
	var batch pgx.Batch
	batch.Queue(sql)
	rows, _ := pgx.FailedBatchResults(&batch, err).Query()
	return rows
}
