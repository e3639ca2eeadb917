package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores/storetest"
)

func lacks(own bool) map[storetest.Act]string {
	lacks := map[storetest.Act]string{
		storetest.ActBatchCommit:        "database/sql has no batches; several statements in one text are checked",
		storetest.ActNested:             "database/sql has no nested transactions; savepoints are checked",
		storetest.ActDeferredConstraint: "no constraint is checked at commit",
		storetest.ActSerialization:      "nothing fails to serialize at the isolation of handlers; deadlocks are checked",
		storetest.ActCloseConnection:    "a *sql.Tx does not give its connection away",
	}
	if !own {
		lacks[storetest.ActConfigure] = "what a handler makes of a connection of its own program's stays, with an inbox or without"
	}
	return lacks
}

func acts(p product, own bool) map[storetest.Act]storetest.Conduct {
	all := map[storetest.Act]storetest.Conduct{
		storetest.ActCommit:   onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }),
		storetest.ActRollback: onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }),
		storetest.ActLeakQuery: func(ctx context.Context, db *storetest.Database) error {
			return inTx(ctx, func(tx *sql.Tx) error {
				id, err := connectionID(ctx, tx)
				if err != nil {
					return err
				}
				go func() { _ = readAll(tx.QueryContext(ctx, "SELECT SLEEP(1)")) }()
				return runs(ctx, db, id)
			})
		},
		storetest.ActOpenRows: onTx(func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, numbers(50_000)+" SELECT n FROM numbers") //nolint:sqlclosecheck // on purpose
			if err == nil && !rows.Next() {
				err = fmt.Errorf("%w: no rows: %w", storetest.ErrNotPerformed, rows.Err())
			}
			return err
		}),
		storetest.ActCancelRead: onTx(func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			return interrupted(readAll(tx.QueryContext(ctx, "SELECT SLEEP(1)")))
		}),
		storetest.ActCancelWrite: onTx(func(ctx context.Context, tx *sql.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := tx.ExecContext(ctx, "INSERT INTO storetest_many SELECT SLEEP(0.2)")
			return interrupted(err)
		}),
		storetest.ActServerTimeout: onTx(func(ctx context.Context, tx *sql.Tx) error {
			if p.maria() {
				_, err := tx.ExecContext(ctx, "SET STATEMENT max_statement_time = 0.05 FOR INSERT INTO storetest_many SELECT SLEEP(5)")
				return interrupted(err)
			}
			return interrupted(readAll(tx.QueryContext(ctx, "SELECT /*+ MAX_EXECUTION_TIME(50) */ count(*) FROM information_schema.collations a, information_schema.collations b, information_schema.collations c")))
		}),
		storetest.ActDeadlock: func(ctx context.Context, db *storetest.Database) error {
			return inTx(ctx, func(tx *sql.Tx) error { return deadlock(ctx, tx, db.Admin) })
		},
		storetest.ActProcedureCommit: onTx(func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "CALL storetest_commits()")
			return err
		}),
		storetest.ActConfigure: onTx(func(ctx context.Context, tx *sql.Tx) error {
			var errs []error
			for _, text := range []string{
				"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE /* storetest */",
				"SET SESSION TRANSACTION READ ONLY",
				"SET sql_mode = ''",
				"SET SESSION innodb_lock_wait_timeout = 1",
				"SET foreign_key_checks = 0",
				"SET sql_select_limit = 1",
				"SET timestamp = 1",
				"SET time_zone = '+05:00'",
				"USE information_schema",
				"CREATE TEMPORARY TABLE storetest_temporary (id INT)",
				"SET autocommit = 1",
			} {
				_, err := tx.ExecContext(ctx, text)
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		}),
		storetest.ActLoseConnection: func(ctx context.Context, db *storetest.Database) error {
			return inTx(ctx, func(tx *sql.Tx) error {
				id, err := connectionID(ctx, tx)
				if err != nil {
					return err
				}
				_, err = db.Admin.ExecContext(ctx, fmt.Sprintf("KILL %d /* storetest */", id))
				return performed(err)
			})
		},
	}
	if !own {
		delete(all, storetest.ActConfigure)
	}
	return all
}

func connectionID(ctx context.Context, tx *sql.Tx) (id int64, err error) {
	return id, performed(tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id))
}

// runs waits until a connection runs a statement.
func runs(ctx context.Context, db *storetest.Database, id int64) error {
	for range 1000 {
		var sleeping int
		err := db.Admin.QueryRowContext(ctx, "SELECT count(*) FROM information_schema.processlist WHERE id = ? AND info LIKE 'SELECT SLEEP%'", id).Scan(&sleeping)
		if err == nil && sleeping == 1 { // MySQL's list fails while a statement has bytes in it that are no text
			return nil
		}
		<-time.After(5 * time.Millisecond)
	}
	return fmt.Errorf("%w: the query does not begin", storetest.ErrNotPerformed)
}

// deadlock makes the handler's transaction the victim: it has changed less.
func deadlock(ctx context.Context, tx *sql.Tx, admin *sql.DB) error {
	other, err := admin.BeginTx(ctx, nil)
	if err != nil {
		return performed(err)
	}
	defer other.Rollback()
	if _, err := other.ExecContext(ctx, "INSERT INTO storetest_many "+numbers(500)+" SELECT n FROM numbers"); err != nil {
		return performed(err)
	}
	if _, err := tx.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1"); err != nil {
		return performed(err)
	}
	if _, err := other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2"); err != nil {
		return performed(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := other.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 1")
		done <- err
	}()
	for waiting := 0; waiting == 0; { // TiDB ends who waits last, whatever it has changed
		if err := admin.QueryRowContext(ctx, "SELECT count(*) FROM information_schema.tidb_trx WHERE state = 'LockWaiting'").Scan(&waiting); err != nil {
			break // it is another server
		}
	}
	_, err = tx.ExecContext(ctx, "UPDATE storetest_pair SET n = n + 1 WHERE id = 2")
	if otherErr := <-done; otherErr != nil {
		return performed(otherErr)
	}
	if err == nil {
		return fmt.Errorf("%w: there was no deadlock", storetest.ErrNotPerformed)
	}
	return err
}

// interrupted fails the check if a statement was too fast to be interrupted.
func interrupted(err error) error {
	if err == nil {
		return fmt.Errorf("%w: the statement was not interrupted", storetest.ErrNotPerformed)
	}
	return err
}

func performed(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", storetest.ErrNotPerformed, err)
	}
	return nil
}

// numbers begins a statement with the numbers up to n, at most a million.
func numbers(n int) string {
	return fmt.Sprintf("WITH digits AS (SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL "+
		"SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9), "+
		"numbers (n) AS (SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d + 10000 * f.d FROM digits a, digits b, digits c, digits e, digits f LIMIT %d)", n)
}
