package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// TxFromContext returns the transaction that holds the claim, from the context of the handler's
// message. It reports false outside an inbox on a Postgres store.
//
// Use the transaction like any pgx.Tx, with savepoints (Begin, pgx.BeginFunc) if needed. Its Commit
// and Rollback, and SQL that would end it, return stores.ErrTxManaged, and the attempt then cannot
// be committed. After the handler has returned, its methods return pgx.ErrTxClosed, and Conn
// returns nil. Do not keep results of Conn and LargeObjects: the connection serves other messages
// afterwards.
//
// In a batch (middleware.InboxConfig.BatchByHandler), statements that would affect other messages
// return stores.ErrNotShared, and Conn returns a closed connection. The handler then runs again in
// a transaction of its own.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	return sqltx.FromContext[pgx.Tx](ctx, attemptKey{})
}

// Handler adapts a function that takes the transaction to a handler for Router.AddConsumerHandler.
// The handler returns stores.ErrNoTx outside an inbox on a Postgres store, and stores.ErrReentered
// when it runs twice in one attempt.
func Handler(f func(ctx context.Context, tx pgx.Tx, msg *message.Message) error) message.NoPublishHandlerFunc {
	handle := sqltx.Handler(attemptKey{}, f)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

// Lease makes a handler of two functions: effect runs first, outside the database; write runs in
// the transaction that completes the message, with effect's result. If the completion fails, write
// is repeated while the lease lives; effect is not. Use it for handlers in
// InboxConfig.LeaseByHandler: without a lease it returns stores.ErrNoLease before the effect. With
// an inbox on another store, nothing is completed.
func Lease[R any](
	effect func(ctx context.Context, msg *message.Message) (R, error),
	write func(ctx context.Context, tx pgx.Tx, msg *message.Message, result R) error,
) message.NoPublishHandlerFunc {
	handle := sqltx.Lease(attemptKey{}, effect, write)
	return func(msg *message.Message) error { return handle(msg) } // package router finds the store by the file of this function
}

// managedTx is the pgx.Tx that handlers get: an attempt's transaction, or a savepoint in it.
type managedTx struct {
	attempt   *attempt
	tx        pgx.Tx
	savepoint bool
}

var _ pgx.Tx = (*managedTx)(nil)

func (t *managedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.attempt.Acquire(); err != nil {
		return nil, err
	}
	tx, err := t.tx.Begin(ctx)
	t.attempt.Release(err)
	if err != nil {
		return nil, err
	}
	return &managedTx{attempt: t.attempt, tx: tx, savepoint: true}, nil
}

func (t *managedTx) Commit(ctx context.Context) error   { return t.finish(ctx, pgx.Tx.Commit) }
func (t *managedTx) Rollback(ctx context.Context) error { return t.finish(ctx, pgx.Tx.Rollback) }

func (t *managedTx) finish(ctx context.Context, end func(pgx.Tx, context.Context) error) error {
	if err := t.attempt.Acquire(); err != nil {
		return err
	}
	var err error
	defer func() { t.attempt.Release(err) }()
	if !t.savepoint {
		t.attempt.Doom(stores.ErrTxManaged)
		return stores.ErrTxManaged
	}
	err = end(t.tx, ctx)
	return err
}

// admit checks that a handler's statement would not end the transaction. A rewriter runs here, so
// that the checked text is the one that is sent.
func (t *managedTx) admit(ctx context.Context, sql string, args []any) (string, []any, error) {
	sql, args, err := rewrite(ctx, t.tx.Conn(), sql, args)
	if err != nil {
		return sql, args, err
	}
	return sql, args, t.attempt.Admit(sql)
}

// rewrite runs the pgx.QueryRewriter among the options at the front of args.
func rewrite(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	for i, arg := range args {
		switch option := arg.(type) {
		case pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryExecMode:
			continue
		case pgx.QueryRewriter:
			sql, rewritten, err := option.RewriteQuery(ctx, conn, sql, args[i+1:])
			if err != nil {
				return sql, args, fmt.Errorf("postgres: rewrite query: %w", err)
			}
			return rewrite(ctx, conn, sql, append(slices.Clone(args[:i]), rewritten...))
		}
		break
	}
	return sql, args, nil
}

func (t *managedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	sql, args, err := t.admit(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := t.tx.Exec(ctx, sql, args...)
	t.attempt.Release(err)
	return tag, err
}

func (t *managedTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	sql, args, err := t.admit(ctx, sql, args)
	if err != nil {
		return failedRows(sql, err), err
	}
	rows, err := t.tx.Query(ctx, sql, args...)
	if err != nil {
		t.attempt.Release(err)
		return rows, err
	}
	return &managedRows{watchedRows: watchedRows{rows, t.attempt}}, nil
}

func (t *managedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	sql, args, err := t.admit(ctx, sql, args)
	if err != nil {
		return failedRow{err}
	}
	return &managedRow{watchedRow: watchedRow{t.tx.QueryRow(ctx, sql, args...), t.attempt}}
}

// SendBatch checks each query's text before any is sent. Its rows are the driver's own, so the
// commit checks whose transaction it is.
func (t *managedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, query := range b.QueuedQueries {
		var err error
		query.SQL, query.Arguments, err = rewrite(ctx, t.tx.Conn(), query.SQL, query.Arguments)
		if err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		if err := t.attempt.Inspect(query.SQL); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		t.attempt.watchCallback(query)
	}
	t.attempt.Distrust()
	if err := t.attempt.Acquire(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	return &managedBatch{watchedResults: watchedResults{t.tx.SendBatch(ctx, b), t.attempt}}
}

func (t *managedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.attempt.Acquire(); err != nil {
		return 0, err
	}
	n, err := t.tx.CopyFrom(ctx, table, columns, src)
	t.attempt.Release(err)
	return n, err
}

// Prepare leaves a statement in the session, under a name that another message's handler may use
// for a different one. A name that is the text itself cannot clash.
func (t *managedTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if name != "" && name != sql {
		t.attempt.Mark()
	}
	if _, _, err := t.admit(ctx, sql, nil); err != nil {
		return nil, err
	}
	description, err := t.tx.Prepare(ctx, name, sql)
	t.attempt.Release(err)
	return description, err
}

// LargeObjects bypasses the checks, so the commit checks whose transaction it is.
func (t *managedTx) LargeObjects() pgx.LargeObjects {
	if !t.attempt.Distrust() {
		return pgx.LargeObjects{}
	}
	return t.tx.LargeObjects()
}

// Conn bypasses the checks, so the commit checks whose transaction it is, and the connection is
// closed after the attempt. After that Conn returns nil.
func (t *managedTx) Conn() *pgx.Conn {
	if !t.attempt.Bare() {
		return nil
	}
	return t.tx.Conn()
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
