package testenv_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/daemon"
	"github.com/millpond-go/millpond/internal/testenv/mysql"
)

// mysqlServers are what every test here runs on.
var mysqlServers = map[mysql.Product]struct {
	shared  func(testing.TB) *testenv.MySQLServer
	private func(testing.TB, ...func(*mysql.Config)) *testenv.PrivateMySQLServer
}{
	mysql.MariaDB: {testenv.MariaDB, testenv.PrivateMariaDB},
	mysql.MySQL:   {testenv.MySQL, testenv.PrivateMySQL},
}

func openMySQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := mysql.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execMySQL(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query); err != nil {
		t.Fatal(err)
	}
}

func queryMySQL(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var s string
	if err := db.QueryRowContext(t.Context(), query).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestMySQLIsDurable(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	for product, servers := range mysqlServers {
		t.Run(string(product), func(t *testing.T) {
			db := openMySQL(t, servers.shared(t).NewDatabase(t))
			version := queryMySQL(t, db, "SELECT VERSION()")
			t.Logf("it is %s", version)
			if mariaDB := strings.Contains(version, "MariaDB"); mariaDB != (product == mysql.MariaDB) {
				t.Errorf("%s answers with version %s", product, version)
			}
			for _, name := range []string{"innodb_flush_log_at_trx_commit", "sync_binlog", "innodb_doublewrite"} {
				if value := queryMySQL(t, db, "SELECT @@"+name); value != "1" && value != "ON" {
					t.Errorf("%s is %s", name, value)
				}
			}
		})
	}
}

func TestMySQLDatabasesAreSeparateAndDropped(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	for product, servers := range mysqlServers {
		t.Run(string(product), func(t *testing.T) {
			server := servers.shared(t)
			var url string
			t.Run("test", func(t *testing.T) {
				url = server.NewDatabase(t)
				db, err := mysql.Open(url)
				if err != nil {
					t.Fatal(err)
				}
				execMySQL(t, db, "CREATE TABLE t (i int)")
				// A client that is in a transaction at the end does not keep the database.
				tx, err := db.BeginTx(context.Background(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec("INSERT INTO t VALUES (1)"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = tx.Rollback(); _ = db.Close() })
				other := openMySQL(t, server.NewDatabase(t))
				if n := queryMySQL(t, other, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()"); n != "0" {
					t.Error("two databases of one test share a table")
				}
			})
			err := openMySQL(t, url).PingContext(t.Context())
			var answer *driver.MySQLError
			if !errors.As(err, &answer) || answer.Number != 1049 {
				t.Errorf("connecting to the database of a finished test: %v", err)
			}
		})
	}
}

func TestMySQLAtAnotherAddress(t *testing.T) {
	for product, servers := range mysqlServers {
		t.Run(string(product), func(t *testing.T) {
			const address = "mysql://someone:secret@127.0.0.1:1/"
			t.Setenv(product.URLVariable(), address)
			if server := servers.shared(t); server.URL() != address {
				t.Errorf("the server is %s", server.URL())
			}
		})
	}
}

// Committed rows survive a kill, others do not, and the server comes back at the same
// address with its settings. So it does when it was paused, and stopped.
func TestPrivateMySQL(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	for product, servers := range rotation.Some(t, 1, mysqlServers) {
		t.Run(string(product), func(t *testing.T) {
			t.Parallel()
			server := servers.private(t, testenv.WithMySQLSettings(map[string]string{"innodb-lock-wait-timeout": "7", "port": "1"}))
			url := server.NewDatabase(t)
			db := openMySQL(t, url)
			execMySQL(t, db, "CREATE TABLE t (i int) ENGINE=InnoDB")
			execMySQL(t, db, "INSERT INTO t VALUES (1)")
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("INSERT INTO t VALUES (2)"); err != nil {
				t.Fatal(err)
			}
			pauseMySQL(t, server, db)

			done := server.Done()
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			<-done
			if err := tx.Commit(); err == nil {
				t.Error("a killed server has committed")
			}
			if err := server.Kill(); !errors.Is(err, daemon.ErrNotRunning) {
				t.Errorf("killed twice: %v", err)
			}
			if err := server.Pause(); !errors.Is(err, daemon.ErrNotRunning) {
				t.Errorf("paused a killed server: %v", err)
			}
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := server.Start(t.Context()); !errors.Is(err, daemon.ErrRunning) {
				t.Errorf("started twice: %v", err)
			}
			expectMySQL(t, url)

			conn, err := openMySQL(t, url).Conn(t.Context()) // does not hold up the stop
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			expectMySQL(t, url)
			if err := server.Pause(); err != nil { // what is paused can be removed
				t.Fatal(err)
			}
		})
	}
}

func expectMySQL(t *testing.T, url string) {
	t.Helper()
	db := openMySQL(t, url)
	if rows := queryMySQL(t, db, "SELECT GROUP_CONCAT(i) FROM t"); rows != "1" {
		t.Errorf("the rows are %s", rows)
	}
	if value := queryMySQL(t, db, "SELECT @@innodb_lock_wait_timeout"); value != "7" {
		t.Errorf("the setting is %s", value)
	}
}

// pauseMySQL pauses the server and lets it go on.
func pauseMySQL(t *testing.T, server *testenv.PrivateMySQLServer, db *sql.DB) {
	t.Helper()
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if db.PingContext(ctx) == nil {
		t.Error("a paused server answers")
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("a resumed server does not answer: %v", err)
	}
}

func TestMySQLStartFailsAtOnceWithTheLog(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	_, err := mysql.Start(t.Context(), mysql.Config{Settings: map[string]string{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "unknown variable 'no_such_setting=1'") {
		t.Errorf("the error is %v", err)
	}
}

// What Debian unstable has is newer than what any release has.
func TestPrivateNewMariaDB(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PrivateNewMariaDB(t)
	db := openMySQL(t, server.NewDatabase(t))
	version := queryMySQL(t, db, "SELECT VERSION()")
	t.Logf("it is %s", version)
	if !strings.Contains(version, "MariaDB") || strings.HasPrefix(version, "10.") {
		t.Errorf("the version is %s", version)
	}
	if value := queryMySQL(t, db, "SELECT @@innodb_snapshot_isolation"); value != "1" {
		t.Errorf("innodb_snapshot_isolation is %s", value)
	}
}
