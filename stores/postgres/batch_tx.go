package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
)

// memberTx is the pgx.Tx that handlers get in a batch: the transaction, or a savepoint in it. It
// refuses statements that would affect other members, and sends the member's savepoint with its
// first statement.
type memberTx struct {
	managedTx

	member *member
}

var _ pgx.Tx = (*memberTx)(nil)

// admit checks that a statement can be shared.
func (t *memberTx) admit(ctx context.Context, sql string, args []any) (string, []any, error) {
	for _, arg := range args {
		switch arg.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs:
		case pgx.QueryRewriter: // it would get the connection
			return sql, args, t.member.Apart("a QueryRewriter")
		}
	}
	sql, args, err := rewrite(ctx, nil, sql, args)
	if err != nil {
		return sql, args, err
	}
	if what := claimtx.Read(sql).Unshared; what != "" {
		return sql, args, t.member.Apart(what)
	}
	return sql, args, nil
}

// save makes the savepoint in a separate round trip, where it cannot be sent with a statement.
func (t *memberTx) save(ctx context.Context) error {
	if !t.member.Saving() {
		return nil
	}
	if err := t.attempt.Acquire(); err != nil {
		return err
	}
	_, err := t.tx.Exec(ctx, claimtx.Savepoint)
	if err == nil {
		t.member.Saved()
	}
	t.attempt.Release(err)
	return err
}

// rides reports whether the savepoint can be sent with a statement, as a batch. A batch does not
// take the statement's options.
func (t *memberTx) rides(sql string, args []any) bool {
	if !t.member.Saving() || claimtx.Read(sql).Copy {
		return false
	}
	if len(args) == 0 {
		return true
	}
	switch args[0].(type) {
	case pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryExecMode:
		return false
	}
	return true
}

// ride sends the savepoint and a statement in one round trip, and returns the statement's results.
// The caller has acquired the attempt.
func (t *memberTx) ride(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	var batch pgx.Batch
	batch.Queue(claimtx.Savepoint)
	batch.Queue(sql, args...)
	return t.rideBatch(ctx, &batch)
}

func (t *memberTx) rideBatch(ctx context.Context, batch *pgx.Batch) (pgx.BatchResults, error) {
	results := t.tx.SendBatch(ctx, batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return results, err
	}
	t.member.Saved()
	return results, nil
}

func (t *memberTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.save(ctx); err != nil {
		return nil, err
	}
	tx, err := t.managedTx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	nested, _ := tx.(*managedTx)
	return &memberTx{*nested, t.member}, nil
}

func (t *memberTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	sql, args, err = t.admit(ctx, sql, args)
	switch {
	case err != nil:
		return tag, err
	case !t.rides(sql, args):
		if err := t.save(ctx); err != nil {
			return tag, err
		}
		return t.managedTx.Exec(ctx, sql, args...)
	}
	if err := t.attempt.Acquire(); err != nil {
		return tag, err
	}
	results, err := t.ride(ctx, sql, args)
	if err == nil {
		tag, err = results.Exec()
		if closeErr := results.Close(); err == nil {
			err = closeErr
		}
	}
	t.attempt.Release(err)
	return tag, err
}

func (t *memberTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	sql, args, err := t.admit(ctx, sql, args)
	switch {
	case err != nil:
		return failedRows(sql, err), err
	case !t.rides(sql, args):
		if err := t.save(ctx); err != nil {
			return failedRows(sql, err), err
		}
		return t.managedTx.Query(ctx, sql, args...)
	}
	if err := t.attempt.Acquire(); err != nil {
		return failedRows(sql, err), err
	}
	results, err := t.ride(ctx, sql, args)
	if err != nil {
		t.attempt.Release(err)
		return failedRows(sql, err), err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		t.attempt.Release(err)
		return rows, err
	}
	return &managedRows{watchedRows: watchedRows{&ridingRows{rows, results}, t.attempt}}, nil
}

func (t *memberTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := t.Query(ctx, sql, args...)
	if err != nil {
		return failedRow{err}
	}
	return firstRow{rows}
}

// SendBatch sends the savepoint with the batch.
func (t *memberTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, query := range b.QueuedQueries {
		var err error
		if query.SQL, query.Arguments, err = t.admit(ctx, query.SQL, query.Arguments); err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		t.attempt.watchCallback(query)
	}
	if err := t.attempt.Acquire(); err != nil {
		return pgx.FailedBatchResults(b, err)
	}
	if !t.member.Saving() || b.Len() == 0 {
		return &managedBatch{watchedResults: watchedResults{t.tx.SendBatch(ctx, b), t.attempt}}
	}
	var whole pgx.Batch
	whole.Queue(claimtx.Savepoint)
	whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
	results, err := t.rideBatch(ctx, &whole)
	if err != nil {
		t.attempt.Release(err)
		return pgx.FailedBatchResults(b, err)
	}
	return &managedBatch{watchedResults: watchedResults{results, t.attempt}}
}

func (t *memberTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.save(ctx); err != nil {
		return 0, err
	}
	return t.managedTx.CopyFrom(ctx, table, columns, src)
}

// Prepare refuses statements that other members could find.
func (t *memberTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if name != "" && name != sql {
		return nil, t.member.Apart("a statement prepared by name")
	}
	if _, _, err := t.admit(ctx, sql, nil); err != nil {
		return nil, err
	}
	if err := t.save(ctx); err != nil {
		return nil, err
	}
	return t.managedTx.Prepare(ctx, name, sql)
}

// Conn returns a closed connection: its types are there, the transaction is not.
func (t *memberTx) Conn() *pgx.Conn { return t.dead().Conn() }

// LargeObjects returns those of a closed connection.
func (t *memberTx) LargeObjects() pgx.LargeObjects { return t.dead().LargeObjects() }

// deadTimeout bounds the wait for the connection that dead closes. A busy server takes seconds to
// accept one. The handler runs alone once the batch has ended.
const deadTimeout = 5 * time.Second

// dead returns the transaction of a closed connection, for a handler that wants the connection
// itself. It must not get the one with others' claims, and runs again in its own transaction.
func (t *memberTx) dead() pgx.Tx {
	m := t.member
	m.once.Do(func() { m.dead = t.close() })
	return m.dead
}

// close returns the transaction of a connection that it has closed.
func (t *memberTx) close() pgx.Tx {
	_ = t.member.Apart("the connection")
	ctx, cancel := context.WithTimeout(context.Background(), deadTimeout)
	defer cancel()
	conn, err := t.member.batch.store.acquire(ctx)
	if err != nil {
		return closedTx{}
	}
	own := conn.Hijack()
	defer func() { _ = own.Close(ctx) }()
	tx, err := own.Begin(ctx)
	if err != nil {
		return closedTx{}
	}
	return tx
}

// closedTx replaces a transaction when there is no connection to close.
type closedTx struct{ pgx.Tx }

func (closedTx) Conn() *pgx.Conn                { return nil }
func (closedTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// ridingRows are the rows of a batch's last statement. Closing them closes the batch.
type ridingRows struct {
	pgx.Rows

	results pgx.BatchResults
}

func (r *ridingRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	_ = r.results.Close()
	return false
}

// Scan and Values close the rows on an error.

func (r *ridingRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		_ = r.results.Close()
	}
	return err
}

func (r *ridingRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		_ = r.results.Close()
	}
	return values, err
}

func (r *ridingRows) Close() {
	r.Rows.Close()
	_ = r.results.Close()
}

// firstRow is the first row of rows.
type firstRow struct{ rows pgx.Rows }

func (r firstRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}
