package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/testenv"
	testmysql "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/storetest"
)

// product is one of the two servers.
type product struct {
	testmysql.Product
	shared  func(tb testing.TB) *testenv.MySQLServer
	private func(tb testing.TB, options ...func(*testmysql.Config)) *testenv.PrivateMySQLServer
}

var (
	onMariaDB = product{testmysql.MariaDB, testenv.MariaDB, testenv.PrivateMariaDB}
	onMySQL   = product{testmysql.MySQL, testenv.MySQL, testenv.PrivateMySQL}
)

func (p product) maria() bool { return p.Product == testmysql.MariaDB }

// server is one for many checks. It takes the largest message of the suite, and commits
// return before they are on the disk: it is not killed.
func (p product) server(tb testing.TB) interface{ NewDatabase(testing.TB) string } {
	tb.Helper()
	if os.Getenv(p.URLVariable()) != "" {
		return p.shared(tb)
	}
	return p.private(tb, testenv.WithMySQLSettings(map[string]string{
		"max_allowed_packet": "256M", "innodb_flush_log_at_trx_commit": "0", "sync_binlog": "0", "max_connections": "400",
	}))
}

func TestConformanceOnMariaDB(t *testing.T) {
	t.Parallel()
	conformance(t, onMariaDB)
}

func TestConformanceOnMySQL(t *testing.T) {
	t.Parallel()
	conformance(t, onMySQL)
}

func conformance(t *testing.T, p product) {
	t.Helper()
	server := p.server(t)
	newDatabase := func(own bool) func(tb testing.TB) *storetest.Database {
		return func(tb testing.TB) *storetest.Database {
			tb.Helper()
			return newDatabase(tb, server.NewDatabase(tb), own).Database
		}
	}
	t.Run("own", func(t *testing.T) {
		t.Parallel()
		h := harness(p, true)
		h.NewDatabase = newDatabase(true)
		h.NewServer = func(tb testing.TB) *storetest.Database { tb.Helper(); return newServer(tb, p) }
		storetest.Run(t, h)
	})
	t.Run("caller's", func(t *testing.T) {
		t.Parallel()
		h := harness(p, false)
		h.NewDatabase = newDatabase(false)
		if os.Getenv("MILLPOND_SOAK") == "" {
			h.Groups = []string{"claim", "race", "resolve", "take", "handler", "statement", "act", "inbox"}
		}
		storetest.Run(t, h)
	})
}

// newServer is a database on a server that can be killed, and refuse writes.
func newServer(tb testing.TB, p product) *storetest.Database {
	tb.Helper()
	server := p.private(tb)
	db := newDatabase(tb, server.NewDatabase(tb), true)
	exec := func(tb testing.TB, text string) {
		tb.Helper()
		if _, err := db.Admin.ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	fatal := func(tb testing.TB, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	// Administrators may write to a server that is read-only.
	exec(tb, "CREATE USER 'storetest'@'%' IDENTIFIED BY ''")
	exec(tb, "GRANT ALL ON *.* TO 'storetest'@'%'")
	if p.maria() {
		exec(tb, "REVOKE SUPER, READ_ONLY ADMIN ON *.* FROM 'storetest'@'%'")
	} else {
		exec(tb, "REVOKE SUPER, CONNECTION_ADMIN ON *.* FROM 'storetest'@'%'")
	}
	db.asUser("storetest")
	db.Outage = func(tb testing.TB) func() {
		tb.Helper()
		fatal(tb, server.Kill())
		return func() { fatal(tb, server.Start(tb.Context())) }
	}
	db.ReadOnly = func(tb testing.TB) func() {
		tb.Helper()
		exec(tb, "SET GLOBAL read_only = 1")
		return func() { exec(tb, "SET GLOBAL read_only = 0") }
	}
	return db.Database
}

// harness is that of a store on connections of its own, or on a *sql.DB of the caller's.
func harness(p product, own bool) storetest.Harness {
	return storetest.Harness{
		Write: func(ctx context.Context, e storetest.Effect) error {
			return inTx(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, "INSERT INTO "+storetest.EffectTable+" (effect_key, label, run) VALUES (?, ?, ?)", e.Key, e.Label, e.Run)
				return err
			})
		},
		Handler: func(f func(context.Context, *message.Message) error) message.NoPublishHandlerFunc {
			return mysql.Handler(func(ctx context.Context, _ *sql.Tx, msg *message.Message) error { return f(ctx, msg) })
		},
		Ways: ways(own), Acts: acts(p, own), Lacks: lacks(own), Unpreventable: unpreventable(own),
	}
}

// database is one whose stores can be those of another user.
type database struct {
	*storetest.Database
	asUser func(name string)
}

func newDatabase(tb testing.TB, address string, own bool) database {
	tb.Helper()
	config, err := testmysql.ParseURL(address)
	if err != nil {
		tb.Fatal(err)
	}
	config.Logger = log.New(io.Discard, "", 0)
	admin := openDB(tb, config, func(c *driver.Config) { c.MultiStatements = true })
	for _, text := range []string{
		"ALTER DATABASE CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		"CREATE TABLE storetest_many (n BIGINT)",
		"CREATE TABLE storetest_pair (id INT PRIMARY KEY, n INT NOT NULL)",
		"INSERT INTO storetest_pair VALUES (1, 0), (2, 0)",
		"CREATE PROCEDURE storetest_commits() COMMIT",
	} {
		if _, err := admin.ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	c := mysql.Config{Logger: slog.New(slog.DiscardHandler), MaxOpenConns: 6}
	return database{asUser: func(name string) { config.User = name }, Database: &storetest.Database{
		Admin: admin,
		Open: func(tb testing.TB) stores.Store {
			tb.Helper()
			if own {
				store, err := mysql.OpenDB(tb.Context(), config, c)
				if err != nil {
					tb.Fatal(err)
				}
				return store
			}
			db := openDB(tb, config, nil)
			db.SetMaxOpenConns(20)
			store, err := mysql.New(db, c)
			if err != nil {
				tb.Fatal(err)
			}
			return store
		},
		StrictIsolation: func(testing.TB) { c.Isolation = sql.LevelRepeatableRead },
	}}
}

func openDB(tb testing.TB, config *driver.Config, change func(*driver.Config)) *sql.DB {
	tb.Helper()
	config = config.Clone()
	if change != nil {
		change(config)
	}
	connector, err := driver.NewConnector(config)
	if err != nil {
		tb.Fatal(err)
	}
	db := sql.OpenDB(connector)
	tb.Cleanup(func() { db.Close() })
	return db
}

func inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, ok := mysql.TxFromContext(ctx)
	if !ok {
		return stores.ErrNoTx
	}
	return f(tx)
}

func ways(own bool) []storetest.Way {
	unpreventable := ""
	if !own {
		unpreventable = "a *sql.Tx of the caller's goes around the store"
	}
	return []storetest.Way{
		{Name: "Exec", Unpreventable: unpreventable, Exec: func(ctx context.Context, text string) error {
			return inTx(ctx, func(tx *sql.Tx) error {
				_, err := tx.ExecContext(ctx, text)
				return err
			})
		}},
		{Name: "Query", Unpreventable: unpreventable, Exec: func(ctx context.Context, text string) error {
			return inTx(ctx, func(tx *sql.Tx) error { return readAll(tx.QueryContext(ctx, text)) })
		}},
		{Name: "prepared Exec", Unpreventable: unpreventable, Exec: func(ctx context.Context, text string) error {
			return prepared(ctx, text, func(s *sql.Stmt) error {
				_, err := s.ExecContext(ctx)
				return err
			})
		}},
		{Name: "prepared Query", Unpreventable: unpreventable, Exec: func(ctx context.Context, text string) error {
			return prepared(ctx, text, func(s *sql.Stmt) error { return readAll(s.QueryContext(ctx)) })
		}},
		{
			Name: "prepared by SQL", Unpreventable: "the server takes the text of EXECUTE from a variable",
			Exec: func(ctx context.Context, text string) error {
				return inTx(ctx, func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, "SET @storetest = ?", text)
					if err == nil {
						_, err = tx.ExecContext(ctx, "PREPARE storetest FROM @storetest")
					}
					if err == nil {
						_, err = tx.ExecContext(ctx, "EXECUTE storetest")
					}
					return err
				})
			},
		},
	}
}

func unpreventable(own bool) map[storetest.Act]string {
	all := map[storetest.Act]string{
		storetest.ActProcedureCommit: "a procedure may commit",
	}
	if !own {
		all[storetest.ActCommit] = "a *sql.Tx of the caller's commits when its Commit is called"
		all[storetest.ActRollback] = "what it does after its Rollback is not known"
		all[storetest.ActDeadlock] = "nobody sees the error that a handler hides"
	}
	return all
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

func onTx(act func(ctx context.Context, tx *sql.Tx) error) storetest.Conduct {
	return func(ctx context.Context, _ *storetest.Database) error {
		return inTx(ctx, func(tx *sql.Tx) error { return act(ctx, tx) })
	}
}

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
				"SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
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
				_, err = db.Admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
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
		if err != nil || sleeping == 1 {
			return performed(err)
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
