package pgtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores/storetest"
)

// Tx is what [Acts] need of a handler's transaction, whichever driver it is from.
type Tx interface {
	// Exec sends SQL without arguments.
	Exec(ctx context.Context, text string) error

	// Scan sends a query and stores the one value of its first row in dest.
	Scan(ctx context.Context, dest any, text string) error
}

// Acts returns what handlers do to a transaction by SQL alone, with the transaction that
// find finds in their context. They run on a database of [NewDatabase].
func Acts(find func(ctx context.Context) (Tx, error)) map[storetest.Act]storetest.Conduct {
	conducts := make(map[storetest.Act]storetest.Conduct)
	for name, act := range map[storetest.Act]func(context.Context, Tx, *storetest.Database) error{
		storetest.ActLeakQuery:          leakQuery,
		storetest.ActServerTimeout:      failing("57014", "SET LOCAL statement_timeout = '50ms'", "SELECT pg_sleep(2)"),
		storetest.ActDeferredConstraint: failing("", "INSERT INTO storetest_deferred VALUES (1), (1)"),
		storetest.ActSerialization:      failing("40001", "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"),
		storetest.ActDeadlock:           deadlock,
		storetest.ActProcedureCommit:    failing("2D000", "CALL storetest_commits()"),
		storetest.ActConfigure:          configure,
		storetest.ActLoseConnection:     loseConnection,
	} {
		conducts[name] = func(ctx context.Context, db *storetest.Database) error {
			tx, err := find(ctx)
			if err != nil {
				return err
			}
			return act(ctx, tx, db)
		}
	}
	return conducts
}

// What [storetest.ActCancelRead] and [storetest.ActCancelWrite] send: statements that
// end by being cancelled only.
const (
	EndlessRead  = "SELECT pg_sleep(10)"
	EndlessWrite = "INSERT INTO storetest_many SELECT n FROM generate_series(1, 1000000000) AS n"
)

// NotPerformed returns an error that wraps [storetest.ErrNotPerformed].
func NotPerformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storetest.ErrNotPerformed}, args...)...)
}

// WantCode returns err if it is the server's error of that code, or nil where code is "".
// Otherwise the act was not performed.
func WantCode(err error, code string) error {
	var got string
	if coded, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		got = coded.SQLState()
	}
	if got != code || code == "" && err != nil {
		return NotPerformed("the server said %w, not %q", err, code)
	}
	return err
}

// failing sends statements of which the last one fails with a code, "" for none.
func failing(code string, texts ...string) func(context.Context, Tx, *storetest.Database) error {
	return func(ctx context.Context, tx Tx, _ *storetest.Database) error {
		var err error
		for _, text := range texts {
			err = tx.Exec(ctx, text)
		}
		return WantCode(err, code)
	}
}

// leakQuery leaves a goroutine in the middle of a statement, on the server too.
func leakQuery(ctx context.Context, tx Tx, db *storetest.Database) error {
	pid, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	go func() { _ = tx.Exec(ctx, "SELECT pg_sleep(0.5)") }()
	return until(ctx, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'", pid)
}

// backend returns the server's process, by SQL: Conn of a pgx.Tx would make the store
// suspicious.
func backend(ctx context.Context, tx Tx) (pid int, err error) {
	if err = tx.Scan(ctx, &pid, "SELECT pg_backend_pid()"); err != nil {
		err = NotPerformed("%w", err)
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
			return NotPerformed("%w", err)
		}
		if n > 0 {
			return nil
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return NotPerformed("%w", ctx.Err())
		}
	}
}

// deadlock waits for a row of another transaction, which waits for one of ours. The
// victim is the one whose deadlock_timeout ends first after that: the other one has a
// longer one, for which it needs to be a superuser.
func deadlock(ctx context.Context, tx Tx, db *storetest.Database) error {
	other, err := db.Admin.BeginTx(ctx, nil)
	if err != nil {
		return NotPerformed("%w", err)
	}
	defer other.Rollback()
	var pid int
	err = errors.Join(
		other.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid),
		lastError(other.ExecContext(ctx, "SET LOCAL deadlock_timeout = '60s'")),
		lastError(other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2")),
		tx.Exec(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1"),
	)
	if err != nil {
		return NotPerformed("%w", err)
	}
	done := make(chan error, 1)
	go func() { done <- lastError(other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1")) }()
	if err := until(ctx, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", pid); err != nil {
		return err
	}
	err = tx.Exec(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2")
	if otherErr := <-done; otherErr != nil {
		return NotPerformed("the other one: %w", otherErr)
	}
	return WantCode(err, "40P01")
}

func lastError[T any](_ T, err error) error { return err }

// configure changes what settings of a session and of a transaction the store could
// depend on, and leaves it like that.
func configure(ctx context.Context, tx Tx, _ *storetest.Database) error {
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
		errs = append(errs, tx.Exec(ctx, text))
	}
	return errors.Join(errs...)
}

// loseConnection returns when the server has let go of it.
func loseConnection(ctx context.Context, tx Tx, db *storetest.Database) error {
	pid, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := db.Admin.ExecContext(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
		return NotPerformed("%w", err)
	}
	return until(ctx, db, "SELECT 1 - count(*) FROM pg_stat_activity WHERE pid = $1", pid)
}
