package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	modernc "modernc.org/sqlite"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
	"github.com/millpond-go/millpond/stores/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Groups:      append([]string{"claim", "inbox"}, rotation.OnStore(t, "sqlite", storetest.GroupNames()...)...),
		NewDatabase: newConformanceDatabase,
		Write: func(ctx context.Context, e storetest.Effect) error {
			return inTx(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+storetest.EffectTable+" (effect_key, label, run) VALUES (?, ?, ?)", e.Key, e.Label, e.Run)
				return err
			})
		},
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return sqlite.Handler(func(ctx context.Context, _ *sql.Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Transact: transact,
		Ways: []storetest.Way{
			{Name: "Exec", Exec: func(ctx context.Context, text string) error {
				return inTx(ctx, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, text)
					return err
				})
			}},
			{Name: "Query", Exec: func(ctx context.Context, text string) error {
				return inTx(ctx, func(tx *sql.Tx) error { return readAll(tx.QueryContext(ctx, text)) })
			}},
			{Name: "prepared Exec", Exec: func(ctx context.Context, text string) error {
				return prepared(ctx, text, func(s *sql.Stmt) error {
					_, err := s.ExecContext(ctx)
					return err
				})
			}},
			{Name: "prepared Query", Exec: func(ctx context.Context, text string) error {
				return prepared(ctx, text, func(s *sql.Stmt) error { return readAll(s.QueryContext(ctx)) })
			}},
		},
		Acts: map[storetest.Act]storetest.Conduct{
			storetest.ActCommit:   onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Commit() }),
			storetest.ActRollback: onTx(func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() }),
			storetest.ActLeakQuery: onTx(func(ctx context.Context, tx *sql.Tx) error {
				go func() { _ = readAll(tx.QueryContext(ctx, "SELECT storetest_linger()")) }()
				select {
				case <-signals:
					return nil
				case <-time.After(30 * time.Second):
					return fmt.Errorf("%w: the query does not begin", storetest.ErrNotPerformed)
				}
			}),
			storetest.ActOpenRows: onTx(func(ctx context.Context, tx *sql.Tx) error {
				rows, err := tx.QueryContext(ctx, numbers(1_000_000)+" SELECT n FROM numbers") //nolint:sqlclosecheck // on purpose
				if err == nil && !rows.Next() {
					err = fmt.Errorf("%w: no rows: %w", storetest.ErrNotPerformed, rows.Err())
				}
				return err
			}),
			storetest.ActCancelRead: onTx(func(ctx context.Context, tx *sql.Tx) error {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				return interrupted(readAll(tx.QueryContext(ctx, count(1_000_000_000))))
			}),
			storetest.ActCancelWrite: onTx(func(ctx context.Context, tx *sql.Tx) error {
				ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				_, err := tx.ExecContext(ctx, numbers(1_000_000_000)+" INSERT INTO storetest_many SELECT n FROM numbers")
				return interrupted(err)
			}),
			storetest.ActDeferredConstraint: onTx(func(ctx context.Context, tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO storetest_child (parent) VALUES ('missing')")
				return performed(err)
			}),
			storetest.ActConfigure: onTx(func(ctx context.Context, tx *sql.Tx) error {
				var errs []error
				for _, text := range []string{
					"PRAGMA foreign_keys = OFF",
					"PRAGMA synchronous = OFF",
					"PRAGMA journal_mode = OFF",
					"PRAGMA journal_mode = DELETE",
					"PRAGMA locking_mode = EXCLUSIVE",
					"PRAGMA busy_timeout = 60000",
					"PRAGMA wal_checkpoint(TRUNCATE)",
					"PRAGMA writable_schema = ON",
					"PRAGMA defer_foreign_keys = ON",
					"PRAGMA ignore_check_constraints = ON",
					"ATTACH DATABASE ':memory:' AS storetest",
					"CREATE TEMP TABLE millpond_inbox (consumer, message_id, status, completed_at, fingerprint, traceparent)",
					"CREATE TEMP TRIGGER storetest_ignore BEFORE INSERT ON main.millpond_inbox BEGIN SELECT RAISE(IGNORE); END",
					"PRAGMA query_only = ON",
				} {
					_, err := tx.ExecContext(ctx, text)
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			}),
		},
		Lacks: map[storetest.Act]string{
			storetest.ActBatchCommit:     "database/sql has no batches; several statements in one text are checked",
			storetest.ActNested:          "database/sql has no nested transactions; savepoints are checked",
			storetest.ActServerTimeout:   "there is no server that cancels statements",
			storetest.ActSerialization:   "there is one writer, which has the lock from the beginning of its transaction",
			storetest.ActDeadlock:        "there is one writer, which has the lock from the beginning of its transaction",
			storetest.ActProcedureCommit: "there are no stored procedures",
			storetest.ActCloseConnection: "a *sql.Tx does not give its connection away",
			storetest.ActLoseConnection:  "there is no server that could close a connection",
		},
	})
}

func newConformanceDatabase(tb testing.TB) *storetest.Database {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "conformance.db")
	admin, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)"}).String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { admin.Close() })
	for _, text := range []string{
		"CREATE TABLE storetest_many (n INTEGER)",
		"CREATE TABLE storetest_parent (id TEXT PRIMARY KEY)",
		"CREATE TABLE storetest_child (parent TEXT REFERENCES storetest_parent (id) DEFERRABLE INITIALLY DEFERRED)",
	} {
		if _, err := admin.ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	return &storetest.Database{
		Admin: admin,
		Open: func(tb testing.TB) stores.Store {
			tb.Helper()
			store, err := sqlite.New(tb.Context(), path, sqlite.Config{BusyTimeout: 300 * time.Millisecond})
			if err != nil {
				tb.Fatal(err)
			}
			return store
		},
		// Another process that does not let go of the write lock.
		Outage: func(tb testing.TB) func() {
			tb.Helper()
			conn, err := admin.Conn(tb.Context())
			if err != nil {
				tb.Fatal(err)
			}
			if _, err := conn.ExecContext(tb.Context(), "BEGIN IMMEDIATE"); err != nil {
				tb.Fatal(err)
			}
			return func() {
				if _, err := conn.ExecContext(tb.Context(), "ROLLBACK"); err != nil {
					tb.Error(err)
				}
				conn.Close()
			}
		},
	}
}

// transact runs f in a transaction of the program's own.
func transact(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error {
	own := store.(*sqlite.Store)
	tx, err := own.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	err = f(func(c stores.PublisherConfig) message.Publisher { return sqlite.NewPublisher(tx, own, c) })
	if err != nil {
		return err
	}
	return tx.Commit()
}

func inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, ok := sqlite.TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	return f(tx)
}

func onTx(act func(ctx context.Context, tx *sql.Tx) error) storetest.Conduct {
	return func(ctx context.Context, _ *storetest.Database) error {
		return inTx(ctx, func(tx *sql.Tx) error { return act(ctx, tx) })
	}
}

func prepared(ctx context.Context, text string, f func(*sql.Stmt) error) error {
	return inTx(ctx, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, text)
		if err != nil {
			return err
		}
		defer stmt.Close()
		return f(stmt)
	})
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

// numbers begins a statement with the numbers up to n, some millions a second.
func numbers(n int) string {
	return fmt.Sprintf("WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < %d)", n)
}

func count(n int) string { return numbers(n) + " SELECT count(*) FROM numbers" }

// signals gets a value when a statement calls storetest_linger, which then takes its
// time.
var signals = make(chan struct{}, 100)

func init() {
	modernc.MustRegisterScalarFunction("storetest_linger", 0, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		signals <- struct{}{}
		<-time.After(500 * time.Millisecond)
		return int64(1), nil
	})
}
