package mysql_test

import (
	"context"
	"database/sql"
	"io"
	"log"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/rotation"
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

// products take turns by the day: each test is on one of them, and on all in a soak.
var products = map[testmysql.Product]product{onMariaDB.Product: onMariaDB, onMySQL.Product: onMySQL}

func turnOf(t *testing.T) map[testmysql.Product]product {
	t.Helper()
	return rotation.Some(t, 1, products)
}

func (p product) maria() bool { return p.Product == testmysql.MariaDB }

// server is one for many checks. It takes the largest message of the suite, and commits
// return before they are on the disk: it is not killed.
func (p product) server(tb testing.TB) interface{ NewDatabase(testing.TB) string } {
	tb.Helper()
	if os.Getenv(p.URLVariable()) != "" {
		return p.shared(tb)
	}
	settings := map[string]string{
		"max_allowed_packet": "256M", "innodb_flush_log_at_trx_commit": "0", "sync_binlog": "0", "max_connections": "400", "innodb_buffer_pool_size": "256M",
	}
	if p.maria() {
		settings["innodb_log_file_size"] = "256M"
	} else {
		settings["innodb_redo_log_capacity"] = "512M"
		settings["skip_log_bin"] = ""
	}
	return p.private(tb, testenv.WithMySQLSettings(settings))
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
	h := harnessOn(t, p, true)
	h.NewServer = func(tb testing.TB) *storetest.Database { tb.Helper(); return newServer(tb, p) }
	h.Groups = append([]string{"claim", "inbox"}, rotation.OnStore(t, string(p.Product), storetest.GroupNames()...)...)
	storetest.Run(t, h)
}

// On connections that the caller opened, less can be prevented.
func TestConformanceOnTheCallersConnections(t *testing.T) {
	t.Parallel()
	for _, p := range turnOf(t) {
		t.Run(string(p.Product), func(t *testing.T) {
			h := harnessOn(t, p, false)
			if !rotation.Soak() {
				h.Groups = rotation.TurnEvery(t, len(products), 1, "claim", "race", "take", "handler", "statement", "act", "inbox")
			}
			storetest.Run(t, h)
		})
	}
}

// harnessOn has its databases on one server.
func harnessOn(t *testing.T, p product, own bool) storetest.Harness {
	t.Helper()
	server := p.server(t)
	h := harness(p, own)
	h.NewDatabase = func(tb testing.TB) *storetest.Database {
		tb.Helper()
		return newDatabase(tb, server.NewDatabase(tb), own).Database
	}
	return h
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
	noBatches := ""
	if !own {
		noBatches = "they need connections of the store's own"
	}
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
		Transact: transact,
		Ways:     ways(own), Acts: acts(p, own), Lacks: lacks(own), Unpreventable: unpreventable(own), NoBatches: noBatches,
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
	} {
		if _, err := admin.ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	if _, err := admin.ExecContext(tb.Context(), "CREATE PROCEDURE storetest_commits() COMMIT"); err != nil && !strings.Contains(err.Error(), "8108") {
		tb.Fatal(err)
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

// transact runs f in a transaction of the program's own.
func transact(ctx context.Context, store stores.Store, f func(publisher func(stores.PublisherConfig) message.Publisher) error) error {
	own := store.(*mysql.Store)
	tx, err := own.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	err = f(func(c stores.PublisherConfig) message.Publisher { return mysql.NewPublisher(tx, own, c) })
	if err != nil {
		return err
	}
	return tx.Commit()
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
