package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores/storetest"
)

// ways are the calls of a *sql.Tx that take SQL text.
func (e entry) ways() []storetest.Way {
	way := func(name string, send func(ctx context.Context, tx *sql.Tx, text string) error) storetest.Way {
		w := storetest.Way{Name: name, Exec: func(ctx context.Context, text string) error {
			return inTx(ctx, func(tx *sql.Tx) error { return send(ctx, tx, text) })
		}}
		if e.callers {
			w.Unpreventable = "what a *sql.Tx of the caller's sends is not seen"
		}
		return w
	}
	ways := []storetest.Way{
		way("Exec", func(ctx context.Context, tx *sql.Tx, text string) error {
			_, err := tx.ExecContext(ctx, text)
			return err
		}),
		way("Query", func(ctx context.Context, tx *sql.Tx, text string) error {
			return readAll(tx.QueryContext(ctx, text))
		}),
		way("QueryRow", func(ctx context.Context, tx *sql.Tx, text string) error {
			var discarded any
			err := tx.QueryRowContext(ctx, text).Scan(&discarded)
			if errors.Is(err, sql.ErrNoRows) || err != nil && err.Error() == "sql: expected 0 destination arguments in Scan, not 1" {
				return nil
			}
			return err
		}),
	}
	if e.pooled != nil {
		return ways // statements that are prepared belong to a session
	}
	return append(ways,
		way("Prepare", func(ctx context.Context, tx *sql.Tx, text string) error {
			stmt, err := tx.PrepareContext(ctx, text)
			if err != nil {
				return err
			}
			defer stmt.Close()
			_, err = stmt.ExecContext(ctx)
			return err
		}),
		way("Prepare and query", func(ctx context.Context, tx *sql.Tx, text string) error {
			stmt, err := tx.PrepareContext(ctx, text) //nolint:sqlclosecheck // the transaction closes it
			if err != nil {
				return err
			}
			return readAll(stmt.QueryContext(ctx))
		}))
}

func readAll(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

type act func(ctx context.Context, tx *sql.Tx, db *storetest.Database) error

func (e entry) lacks() map[storetest.Act]string {
	return map[storetest.Act]string{
		storetest.ActBatchCommit:     "database/sql has no batches",
		storetest.ActNested:          "database/sql has no nested transactions",
		storetest.ActCloseConnection: "a *sql.Tx does not hand out its connection",
	}
}

func (e entry) unpreventable() map[storetest.Act]string {
	if !e.callers {
		return nil
	}
	return map[storetest.Act]string{storetest.ActCommit: "the driver of the caller's *sql.DB commits when it is told to"}
}

func (e entry) acts() map[storetest.Act]storetest.Conduct {
	conducts := make(map[storetest.Act]storetest.Conduct)
	for name, a := range map[storetest.Act]act{
		storetest.ActCommit:             func(_ context.Context, tx *sql.Tx, _ *storetest.Database) error { return tx.Commit() },
		storetest.ActRollback:           func(_ context.Context, tx *sql.Tx, _ *storetest.Database) error { return tx.Rollback() },
		storetest.ActLeakQuery:          leakQuery,
		storetest.ActOpenRows:           openRows,
		storetest.ActCancelRead:         e.cancelled("SELECT pg_sleep(10)"),
		storetest.ActCancelWrite:        e.cancelled("INSERT INTO storetest_many SELECT n FROM generate_series(1, 1000000000) AS n"),
		storetest.ActServerTimeout:      failing("57014", "SET LOCAL statement_timeout = '50ms'", "SELECT pg_sleep(10)"),
		storetest.ActDeferredConstraint: failing("", "INSERT INTO storetest_deferred VALUES (1), (1)"),
		storetest.ActSerialization:      failing("40001", "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"),
		storetest.ActDeadlock:           deadlock,
		storetest.ActProcedureCommit:    failing("2D000", "CALL storetest_commits()"),
		storetest.ActConfigure:          configure,
		storetest.ActLoseConnection:     loseConnection,
	} {
		conducts[name] = func(ctx context.Context, db *storetest.Database) error {
			return inTx(ctx, func(tx *sql.Tx) error { return a(ctx, tx, db) })
		}
	}
	return conducts
}

func notPerformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storetest.ErrNotPerformed}, args...)...)
}

// failing sends statements of which the last one fails with a code, "" for none.
func failing(code string, texts ...string) act {
	return func(ctx context.Context, tx *sql.Tx, _ *storetest.Database) error {
		var err error
		for _, text := range texts {
			_, err = tx.ExecContext(ctx, text)
		}
		return wantCode(err, code)
	}
}

func wantCode(err error, code string) error {
	var got string
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		got = coded.SQLState()
	}
	if got != code || code == "" && err != nil {
		return notPerformed("the server said %w, not %q", err, code)
	}
	return err
}

// leakQuery leaves a goroutine in the middle of a statement, on the server too.
func leakQuery(ctx context.Context, tx *sql.Tx, db *storetest.Database) error {
	pid, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	go func() { _, _ = tx.ExecContext(ctx, "SELECT pg_sleep(0.5)") }()
	return until(ctx, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'", pid)
}

func backend(ctx context.Context, tx *sql.Tx) (pid int, err error) {
	if err = tx.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		err = notPerformed("%w", err)
	}
	return pid, err
}

// until asks until the count is not zero.
func until(ctx context.Context, db *storetest.Database, count string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var n int
		if err := db.Admin.QueryRowContext(ctx, count, args...).Scan(&n); err != nil {
			return notPerformed("%w", err)
		}
		if n > 0 {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return notPerformed("%w", ctx.Err())
		}
	}
}

func openRows(ctx context.Context, tx *sql.Tx, _ *storetest.Database) error {
	rows, err := tx.QueryContext(ctx, "SELECT repeat('row', 100) FROM generate_series(1, 1000000)") //nolint:sqlclosecheck,rowserrcheck // that is the point
	if err != nil || !rows.Next() {
		return notPerformed("%w", err)
	}
	return nil
}

func (e entry) cancelled(text string) act {
	return func(ctx context.Context, tx *sql.Tx, _ *storetest.Database) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.ExecContext(ctx, text)
		if err == nil || ctx.Err() == nil {
			return notPerformed("the statement ended with %w", err)
		}
		return err
	}
}

// deadlock waits for a row of another transaction, which waits for one of ours. The
// victim is the one whose deadlock_timeout ends first after that: the other one has a
// longer one, for which it needs to be a superuser.
func deadlock(ctx context.Context, tx *sql.Tx, db *storetest.Database) error {
	other, err := db.Admin.BeginTx(ctx, nil)
	if err != nil {
		return notPerformed("%w", err)
	}
	defer other.Rollback()
	var pid int
	err = errors.Join(
		other.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid),
		lastError(other.ExecContext(ctx, "SET LOCAL deadlock_timeout = '60s'")),
		lastError(other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2")),
		lastError(tx.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1")),
	)
	if err != nil {
		return notPerformed("%w", err)
	}
	done := make(chan error, 1)
	go func() { done <- lastError(other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1")) }()
	if err := until(ctx, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", pid); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2")
	if otherErr := <-done; otherErr != nil {
		return notPerformed("the other one: %w", otherErr)
	}
	return wantCode(err, "40P01")
}

func lastError[T any](_ T, err error) error { return err }

func configure(ctx context.Context, tx *sql.Tx, _ *storetest.Database) error {
	var errs []error
	for _, text := range []string{
		"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
		"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
		"SET idle_in_transaction_session_timeout = 0",
		"SET statement_timeout = '60s'",
		"SET lock_timeout = '10ms'",
		"SET synchronous_commit = off",
		"SET standard_conforming_strings = off",
		"SET client_min_messages = error",
		"SET bytea_output = 'escape'",
		"SET DateStyle = 'German'",
		"SET IntervalStyle = 'sql_standard'",
		"SET TimeZone = 'Asia/Kathmandu'",
		"SET CONSTRAINTS ALL DEFERRED",
		"SELECT pg_advisory_unlock_all()",
		"LOCK TABLE storetest_many IN ACCESS EXCLUSIVE MODE",
		"LISTEN storetest",
		"SET TRANSACTION READ ONLY",
	} {
		_, err := tx.ExecContext(ctx, text)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// loseConnection returns when the server has let go of it.
func loseConnection(ctx context.Context, tx *sql.Tx, db *storetest.Database) error {
	pid, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := db.Admin.ExecContext(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
		return notPerformed("%w", err)
	}
	return until(ctx, db, "SELECT 1 - count(*) FROM pg_stat_activity WHERE pid = $1", pid)
}
