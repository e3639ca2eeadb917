package myproxy_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/internal/myproxy"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/mysql"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const insertSQL = "INSERT INTO t (i) VALUES (?)"

// env is a database with an empty table t, behind a proxy.
type env struct {
	proxy  *myproxy.Proxy
	direct *sql.DB // past the proxy
}

// byTurns runs a test on MariaDB or on MySQL.
func byTurns(t *testing.T, test func(t *testing.T, e *env)) {
	t.Helper()
	for name, server := range rotation.Some(t, 1, map[string]func(testing.TB) *testenv.MySQLServer{"mariadb": testenv.MariaDB, "mysql": testenv.MySQL}) {
		t.Run(name, func(t *testing.T) { test(t, newEnv(t, server(t).NewDatabase(t))) })
	}
}

func newEnv(t *testing.T, databaseURL string) *env {
	t.Helper()
	proxy, err := myproxy.Start(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &env{proxy: proxy, direct: open(t, databaseURL)}
	if _, err := e.direct.Exec("CREATE TABLE t (i int PRIMARY KEY, s longblob) ENGINE=InnoDB"); err != nil {
		t.Fatal(err)
	}
	return e
}

func open(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// connect returns one connection through the proxy; parameters are the driver's.
func (e *env) connect(t *testing.T, parameters string) *sql.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, err := open(t, e.proxy.URL()+"?"+parameters).Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rows returns the number of committed rows of t.
func (e *env) rows(t *testing.T) int {
	t.Helper()
	var n int
	if err := e.direct.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func execAll(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, query := range statements {
		if _, err := conn.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

// insert runs START TRANSACTION, INSERT, COMMIT.
func insert(ctx context.Context, conn *sql.Conn, i int) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, insertSQL, i); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func TestTransactionCounts(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		conn := e.connect(t, "interpolateParams=true")
		if s := e.proxy.Stats(); s.RoundTrips != 0 {
			t.Errorf("connecting counted as %d round trips", s.RoundTrips)
		}
		before := e.proxy.Stats()
		if err := insert(t.Context(), conn, 2); err != nil {
			t.Fatal(err)
		}
		cost := e.proxy.Stats().Since(before)
		if cost.RoundTrips != 3 || cost.Commits != 1 || cost.Rollbacks != 0 {
			t.Errorf("the transaction cost %+v", cost)
		}
		if want := map[string]int{"START TRANSACTION": 1, "INSERT INTO t (i) VALUES (2)": 1, "COMMIT": 1}; !maps.Equal(cost.Statements, want) {
			t.Errorf("the statements were %v, not %v", cost.Statements, want)
		}
		if n := e.rows(t); n != 1 {
			t.Errorf("there are %d rows", n)
		}
	})
}

func TestRoundTrips(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		conn := e.connect(t, "multiStatements=true&clientFoundRows=true")
		exec := func(statements ...string) func(context.Context) error {
			return func(ctx context.Context) error { return execAll(ctx, conn, statements...) }
		}
		query := func(text string, args ...any) func(context.Context) error {
			return func(ctx context.Context) error { return readAll(ctx, conn, text, args...) }
		}
		for _, test := range []struct {
			name string
			run  func(ctx context.Context) error
			want myproxy.Stats
		}{
			{"several statements", exec("BEGIN; INSERT INTO t (i) VALUES (1); COMMIT"), myproxy.Stats{RoundTrips: 1, Commits: 1}},
			{"and one after the commit", exec("BEGIN; INSERT INTO t (i) VALUES (2); COMMIT; SELECT 1"), myproxy.Stats{RoundTrips: 1, Commits: 1}},
			{"rollback", exec("BEGIN; ROLLBACK"), myproxy.Stats{RoundTrips: 1, Rollbacks: 1}},
			{"rollback to a savepoint", exec("BEGIN", "SAVEPOINT a", "ROLLBACK TO a", "COMMIT WORK"), myproxy.Stats{RoundTrips: 4, Commits: 1}},
			{"commit of nothing", exec("COMMIT"), myproxy.Stats{RoundTrips: 1}},
			{"commit that opens the next", exec("BEGIN", "COMMIT AND CHAIN", "COMMIT"), myproxy.Stats{RoundTrips: 3, Commits: 2}},
			{"commit by itself", exec("INSERT INTO t (i) VALUES (3)"), myproxy.Stats{RoundTrips: 1}},
			{"commit without autocommit", exec("SET autocommit = 0", "INSERT INTO t (i) VALUES (4)", "COMMIT", "SET autocommit = 1"), myproxy.Stats{RoundTrips: 4, Commits: 1}},
			{"commit by DDL", exec("BEGIN", "CREATE TABLE u (i int)", "COMMIT"), myproxy.Stats{RoundTrips: 3, Commits: 1}},
			{"error, and the transaction goes on", func(ctx context.Context) error {
				err := execAll(ctx, conn, "BEGIN", "INSERT INTO t (i) VALUES (3)")
				if err == nil {
					return errors.New("the duplicate was inserted")
				}
				return execAll(ctx, conn, "INSERT INTO t (i) VALUES (5)", "COMMIT")
			}, myproxy.Stats{RoundTrips: 4, Commits: 1}},
			{"error before the commit", func(ctx context.Context) error {
				if err := execAll(ctx, conn, "BEGIN; INSERT INTO t (i) VALUES (3); COMMIT"); err == nil {
					return errors.New("the duplicate was inserted")
				}
				return execAll(ctx, conn, "ROLLBACK")
			}, myproxy.Stats{RoundTrips: 2, Rollbacks: 1}},
			{"rows", query("SELECT i, s, NULL, 'x' FROM t"), myproxy.Stats{RoundTrips: 1}},
			{"rows of several results", query("SELECT 1; SELECT 2, 3; SELECT i FROM t WHERE i < 0; DO 1"), myproxy.Stats{RoundTrips: 1}},
			// Prepare and execute; the closing costs nothing.
			{"prepared", query("SELECT i, ? FROM t WHERE i > ?", 7, 0), myproxy.Stats{RoundTrips: 2}},
			{"prepared without columns", func(ctx context.Context) error {
				_, err := conn.ExecContext(ctx, insertSQL, 6)
				return err
			}, myproxy.Stats{RoundTrips: 2}},
			{"prepared once and run twice", func(ctx context.Context) error {
				stmt, err := conn.PrepareContext(ctx, "SELECT 1 WHERE 1 = ?")
				if err != nil {
					return err
				}
				defer stmt.Close()
				for range 2 {
					var one int
					if err := stmt.QueryRowContext(ctx, 1).Scan(&one); err != nil {
						return err
					}
				}
				return nil
			}, myproxy.Stats{RoundTrips: 3}},
			{"wrong statement", func(ctx context.Context) error {
				if _, err := conn.ExecContext(ctx, "INSERT INTO nowhere (i) VALUES (?)", 1); err == nil {
					return errors.New("the table exists")
				}
				return nil
			}, myproxy.Stats{RoundTrips: 1}},
			{"ping", func(ctx context.Context) error { return conn.PingContext(ctx) }, myproxy.Stats{RoundTrips: 1}},
		} {
			t.Run(test.name, func(t *testing.T) {
				before := e.proxy.Stats()
				if err := test.run(t.Context()); err != nil {
					t.Fatal(err)
				}
				got := e.proxy.Stats().Since(before)
				if got.RoundTrips != test.want.RoundTrips || got.Commits != test.want.Commits || got.Rollbacks != test.want.Rollbacks {
					t.Errorf("counted %+v", got)
				}
			})
		}
	})
}

// readAll reads all rows of all results of a query.
func readAll(ctx context.Context, conn *sql.Conn, text string, args ...any) error {
	rows, err := conn.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
		}
	}
	return rows.Err()
}

// MariaDB's compound statements answer once, whatever happens in them.
func TestCompoundStatement(t *testing.T) {
	e := newEnv(t, testenv.MariaDB(t).NewDatabase(t))
	conn := e.connect(t, "")
	before := e.proxy.Stats()
	err := execAll(t.Context(), conn, "BEGIN NOT ATOMIC START TRANSACTION; INSERT INTO t (i) VALUES (1); IF ROW_COUNT() = 1 THEN COMMIT; ELSE ROLLBACK; END IF; END")
	if err != nil {
		t.Fatal(err)
	}
	if cost := e.proxy.Stats().Since(before); cost.RoundTrips != 1 || cost.Commits != 1 || e.rows(t) != 1 {
		t.Errorf("%d rows, counted %+v", e.rows(t), cost)
	}
}

func TestConnStats(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		one, two := e.connect(t, ""), e.connect(t, "")
		ids := make(map[*sql.Conn]uint32)
		for _, conn := range []*sql.Conn{one, two, two} {
			var id uint32
			if err := conn.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id); err != nil {
				t.Fatal(err)
			}
			ids[conn] = id
		}
		for conn, want := range map[*sql.Conn]int{one: 1, two: 2} {
			if s, ok := e.proxy.ConnStats(ids[conn]); !ok || s.RoundTrips != want {
				t.Errorf("%d round trips (%v), want %d", s.RoundTrips, ok, want)
			}
		}
		_ = one.Raw(func(any) error { return errors.New("bad") })
		if err := one.Close(); err != nil {
			t.Fatal(err)
		}
		if s := e.proxy.Stats(); s.RoundTrips != 3 {
			t.Errorf("%d round trips in total, want 3", s.RoundTrips)
		}
	})
}

// What is longer than a packet goes on in the next, in both directions.
func TestLargeMessages(t *testing.T) {
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateMariaDB(t, testenv.WithMySQLSettings(map[string]string{"max_allowed_packet": "64M"}))
	e := newEnv(t, server.NewDatabase(t))
	// Packets that go on begin like errors.
	payload := bytes.Repeat([]byte{0xff}, 1<<24+1000)
	for parameters, trips := range map[string]int{"interpolateParams=true": 2, "interpolateParams=false": 4} {
		conn := e.connect(t, "maxAllowedPacket=0&multiStatements=true&"+parameters) // as the server says, which is asked
		before := e.proxy.Stats()
		if err := execAll(t.Context(), conn, "BEGIN"); err != nil {
			t.Fatal(err)
		}
		query := "SELECT ?"
		if trips == 2 {
			query += "; COMMIT"
		}
		var back []byte
		if err := conn.QueryRowContext(t.Context(), query, payload).Scan(&back); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back, payload) {
			t.Errorf("%s: the payload came back changed", parameters)
		}
		if trips != 2 { // several statements cannot be prepared
			if err := execAll(t.Context(), conn, "COMMIT"); err != nil {
				t.Fatal(err)
			}
		}
		cost := e.proxy.Stats().Since(before)
		if cost.RoundTrips != trips || cost.Commits != 1 {
			t.Errorf("%s: %d round trips, %d commits", parameters, cost.RoundTrips, cost.Commits)
		}
	}
}

// A client that would like TLS or compression is told that there is none.
func TestPreferredTLSAndCompression(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		if err := insert(t.Context(), e.connect(t, "tls=preferred&compress=true"), 1); err != nil {
			t.Error(err)
		}
		if s := e.proxy.Stats(); s.Commits != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

// An account with a password goes through every method of authentication.
func TestPassword(t *testing.T) {
	byTurns(t, func(t *testing.T, e *env) {
		name := "u" + strings.ToLower(time.Now().Format("150405.000000"))
		for _, statement := range []string{"CREATE USER '" + name + "'@'%' IDENTIFIED BY 'secret'", "GRANT ALL ON *.* TO '" + name + "'@'%'"} {
			if _, err := e.direct.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() { _, _ = e.direct.Exec("DROP USER '" + name + "'@'%'") })
		for password, works := range map[string]bool{"secret": true, "wrong": false} {
			db := open(t, strings.Replace(e.proxy.URL(), "root@", name+":"+password+"@", 1))
			if err := db.PingContext(t.Context()); (err == nil) != works {
				t.Errorf("with the password %q: %v", password, err)
			}
		}
	})
}

func TestServerIsDown(t *testing.T) {
	proxy, err := myproxy.Start("mysql://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := open(t, proxy.URL()).PingContext(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("connecting to a server that is down: %v", err)
	}
}

func TestStartRefusesWhatIsNoURL(t *testing.T) {
	for _, wrong := range []string{"root:secret@tcp(127.0.0.1:3306)/x", "postgres://root:secret@127.0.0.1/x", "mysql://", ""} {
		proxy, err := myproxy.Start(wrong)
		if err == nil {
			_ = proxy.Close()
		}
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
