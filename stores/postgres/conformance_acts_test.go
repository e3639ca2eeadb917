package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/stores/storetest"
)

// ways are the calls of a pgx.Tx that take SQL text, and those around it.
func ways() []storetest.Way {
	way := func(name string, send func(ctx context.Context, tx pgx.Tx, text string) error) storetest.Way {
		return storetest.Way{Name: name, Exec: func(ctx context.Context, text string) error {
			return inTx(ctx, func(tx pgx.Tx) error { return send(ctx, tx, text) })
		}}
	}
	around := func(reason string, w storetest.Way) storetest.Way {
		w.Unpreventable = reason
		return w
	}
	exec := func(options ...any) func(context.Context, pgx.Tx, string) error {
		return func(ctx context.Context, tx pgx.Tx, text string) error {
			_, err := tx.Exec(ctx, text, options...)
			return err
		}
	}
	return []storetest.Way{
		way("Exec", exec()), // without arguments: the simple protocol, which takes several statements
		way("Exec extended", exec(pgx.QueryExecModeExec)),
		way("Exec described", exec(pgx.QueryExecModeDescribeExec)),
		way("Exec simple", exec(pgx.QueryExecModeSimpleProtocol)),
		way("Query", func(ctx context.Context, tx pgx.Tx, text string) error {
			return readAll(tx.Query(ctx, text))
		}),
		way("Query simple", func(ctx context.Context, tx pgx.Tx, text string) error {
			return readAll(tx.Query(ctx, text, pgx.QueryExecModeSimpleProtocol))
		}),
		way("QueryRow", func(ctx context.Context, tx pgx.Tx, text string) error {
			err := tx.QueryRow(ctx, text).Scan()
			if errors.Is(err, pgx.ErrNoRows) || err != nil && err.Error() == "number of field descriptions must equal number of destinations, got 1 and 0" {
				return nil
			}
			return err
		}),
		way("batch", func(ctx context.Context, tx pgx.Tx, text string) error {
			var batch pgx.Batch
			batch.Queue(text)
			return tx.SendBatch(ctx, &batch).Close()
		}),
		way("batch that begins", func(ctx context.Context, tx pgx.Tx, text string) error {
			var batch pgx.Batch
			batch.BeginTx(pgx.TxOptions{BeginQuery: text})
			return tx.SendBatch(ctx, &batch).Close()
		}),
		way("Prepare", func(ctx context.Context, tx pgx.Tx, text string) error {
			name := "storetest_" + text
			if _, err := tx.Prepare(ctx, name, text); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, name)
			return err
		}),
		way("nested transaction", func(ctx context.Context, tx pgx.Tx, text string) error {
			return pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error { return exec()(ctx, nested, text) })
		}),
		around("Conn is part of pgx.Tx, and the connection knows no owner", way("Conn", func(ctx context.Context, tx pgx.Tx, text string) error {
			_, err := tx.Conn().Exec(ctx, text)
			return err
		})),
		around("the connection below belongs to the driver", way("PgConn", func(ctx context.Context, tx pgx.Tx, text string) error {
			return tx.Conn().PgConn().Exec(ctx, text).Close()
		})),
		around("rows have the connection, too", way("Conn of rows", func(ctx context.Context, tx pgx.Tx, text string) error {
			rows, err := tx.Query(ctx, "SELECT 1")
			if err != nil {
				return err
			}
			rows.Close()
			_, err = rows.Conn().Exec(ctx, text)
			return err
		})),
		around("and so have those of a batch", way("Conn of a batch", func(ctx context.Context, tx pgx.Tx, text string) error {
			var batch pgx.Batch
			batch.Queue("SELECT 1")
			results := tx.SendBatch(ctx, &batch)
			rows, err := results.Query()
			if err != nil {
				return errors.Join(err, results.Close())
			}
			rows.Close()
			conn := rows.Conn()
			if err := results.Close(); err != nil {
				return err
			}
			_, err = conn.Exec(ctx, text)
			return err
		})),
		around("a scanner of rows has them, too", way("Conn in a RowScanner", func(ctx context.Context, tx pgx.Tx, text string) error {
			var conn connection
			if err := tx.QueryRow(ctx, "SELECT 1").Scan(&conn); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, text)
			return err
		})),
		around("and so have callbacks of a batch", way("Conn in a batch's callback", func(ctx context.Context, tx pgx.Tx, text string) error {
			var conn *pgx.Conn
			var batch pgx.Batch
			batch.Queue("SELECT 1").Query(func(rows pgx.Rows) error {
				conn = rows.Conn()
				return nil
			})
			if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
				return err
			}
			_, err := conn.Exec(ctx, text)
			return err
		})),
		around("a rewriter decides itself what is sent", way("QueryRewriter", func(ctx context.Context, tx pgx.Tx, text string) error {
			_, err := tx.Exec(ctx, "SELECT 1", rewriter(text))
			return err
		})),
		around("a statement that was prepared on the connection is sent by its name", way("name of a statement", func(ctx context.Context, tx pgx.Tx, text string) error {
			name := "named " + text
			if _, err := tx.Conn().Prepare(ctx, name, text); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, name)
			return err
		})),
	}
}

// connection scans the connection of a row.
type connection struct{ *pgx.Conn }

func (c *connection) ScanRow(rows pgx.Rows) error {
	c.Conn = rows.Conn()
	rows.Close()
	return nil
}

type rewriter string

func (r rewriter) RewriteQuery(context.Context, *pgx.Conn, string, []any) (string, []any, error) {
	return string(r), nil, nil
}

func readAll(rows pgx.Rows, err error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
	}
	return rows.Err()
}

type act func(ctx context.Context, tx pgx.Tx, db *storetest.Database) error

func acts() map[storetest.Act]storetest.Conduct {
	conducts := make(map[storetest.Act]storetest.Conduct)
	for name, a := range map[storetest.Act]act{
		storetest.ActCommit:   func(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error { return tx.Commit(ctx) },
		storetest.ActRollback: func(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error { return tx.Rollback(ctx) },
		storetest.ActBatchCommit: func(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
			var both, commit pgx.Batch
			both.Queue("INSERT INTO " + storetest.TakenTable + " (id) VALUES ('taken')")
			both.Queue("COMMIT")
			commit.Queue("commit")
			return errors.Join(tx.SendBatch(ctx, &both).Close(), tx.SendBatch(ctx, &commit).Close())
		},
		storetest.ActNested:             nested,
		storetest.ActLeakQuery:          leakQuery,
		storetest.ActOpenRows:           openRows,
		storetest.ActCancelRead:         cancelled("SELECT pg_sleep(10)"),
		storetest.ActCancelWrite:        cancelled("INSERT INTO storetest_many SELECT n FROM generate_series(1, 1000000000) AS n"),
		storetest.ActServerTimeout:      failing("57014", "SET LOCAL statement_timeout = '50ms'", "SELECT pg_sleep(10)"),
		storetest.ActDeferredConstraint: failing("", "INSERT INTO storetest_deferred VALUES (1), (1)"),
		storetest.ActSerialization:      failing("40001", "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"),
		storetest.ActDeadlock:           deadlock,
		storetest.ActProcedureCommit:    failing("2D000", "CALL storetest_commits()"),
		storetest.ActConfigure:          configure,
		storetest.ActCloseConnection: func(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
			return tx.Conn().Close(ctx)
		},
		storetest.ActLoseConnection: loseConnection,
	} {
		conducts[name] = func(ctx context.Context, db *storetest.Database) error {
			return inTx(ctx, func(tx pgx.Tx) error { return a(ctx, tx, db) })
		}
	}
	return conducts
}

func notPerformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{storetest.ErrNotPerformed}, args...)...)
}

// failing sends statements of which the last one fails with a code, "" for none.
func failing(code string, texts ...string) act {
	return func(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
		var err error
		for _, text := range texts {
			_, err = tx.Exec(ctx, text)
		}
		return wantCode(err, code)
	}
}

func wantCode(err error, code string) error {
	var got string
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		got = pgErr.Code
	}
	if got != code || code == "" && err != nil {
		return notPerformed("the server said %w, not %q", err, code)
	}
	return err
}

func nested(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		_, err := nested.Exec(ctx, "INSERT INTO storetest_many VALUES (1)")
		return err
	})
	if err != nil {
		return notPerformed("%w", err)
	}
	err = pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		_, err := nested.Exec(ctx, "INSERT INTO "+storetest.TakenTable+" (id) VALUES ('taken')")
		return err
	})
	return wantCode(err, "23505")
}

// leakQuery leaves a goroutine in the middle of a statement, on the server too.
func leakQuery(ctx context.Context, tx pgx.Tx, db *storetest.Database) error {
	pid, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	go func() { _, _ = tx.Exec(ctx, "SELECT pg_sleep(0.5)") }()
	return until(ctx, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND query LIKE '%pg_sleep%'", pid)
}

// backend returns the server's process, by SQL: Conn would make the store suspicious.
func backend(ctx context.Context, tx pgx.Tx) (pid int, err error) {
	if err = tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
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

func openRows(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
	rows, err := tx.Query(ctx, "SELECT repeat('row', 100) FROM generate_series(1, 1000000)")
	if err != nil || !rows.Next() {
		return notPerformed("%w", err)
	}
	return nil
}

func cancelled(text string) act {
	return func(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := tx.Exec(ctx, text)
		if !errors.Is(err, context.DeadlineExceeded) {
			return notPerformed("the statement ended with %w", err)
		}
		return err
	}
}

// deadlock waits for a row of another transaction, which waits for one of ours. The
// victim is the one whose deadlock_timeout ends first after that: the other one has a
// longer one, for which it needs to be a superuser.
func deadlock(ctx context.Context, tx pgx.Tx, db *storetest.Database) error {
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
		lastError(tx.Exec(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1")),
	)
	if err != nil {
		return notPerformed("%w", err)
	}
	done := make(chan error, 1)
	go func() { done <- lastError(other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1")) }()
	if err := until(ctx, db, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'", pid); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2")
	if otherErr := <-done; otherErr != nil {
		return notPerformed("the other one: %w", otherErr)
	}
	return wantCode(err, "40P01")
}

func lastError[T any](_ T, err error) error { return err }

func configure(ctx context.Context, tx pgx.Tx, _ *storetest.Database) error {
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
		"SET TimeZone = 'Asia/Kathmandu'",
		"SET CONSTRAINTS ALL DEFERRED",
		"SELECT pg_advisory_unlock_all()",
		"LOCK TABLE storetest_many IN ACCESS EXCLUSIVE MODE",
		"LISTEN storetest",
		"SET TRANSACTION READ ONLY",
	} {
		_, err := tx.Exec(ctx, text)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// loseConnection returns when the server has let go of it.
func loseConnection(ctx context.Context, tx pgx.Tx, db *storetest.Database) error {
	pid, err := backend(ctx, tx)
	if err != nil {
		return err
	}
	if _, err := db.Admin.ExecContext(ctx, "SELECT pg_terminate_backend($1)", pid); err != nil {
		return notPerformed("%w", err)
	}
	return until(ctx, db, "SELECT 1 - count(*) FROM pg_stat_activity WHERE pid = $1", pid)
}
