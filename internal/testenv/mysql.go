package testenv

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var (
	sharedMariaDB = sharedMySQL(mysql.MariaDB)
	sharedMySQL9  = sharedMySQL(mysql.MySQL)
)

func sharedMySQL(product mysql.Product) *shared.Server {
	return &shared.Server{
		Name:    string(product),
		Version: fmt.Sprint(mysql.DefaultSettings(product)),
		Start: func(ctx context.Context) (shared.Instance, error) {
			return mysql.Start(ctx, mysql.Config{Product: product})
		},
	}
}

func init() {
	sharedMariaDB.SuperviseIfAsked()
	sharedMySQL9.SuperviseIfAsked()
}

// MySQLServer is a running server of MySQL's family that tests share. Do not stop it,
// and change nothing outside of the test's own databases.
type MySQLServer struct{ url string }

// MariaDB returns the MariaDB server that the packages of this test run share: the one
// at MILLPOND_TEST_MARIADB_URL if that is set, else one that is started when it is first
// needed and ends by itself some time after the last test. The account may create
// databases and end the connections of others; on a server of ours it is root.
func MariaDB(tb testing.TB) *MySQLServer {
	tb.Helper()
	return openMySQL(tb, mysql.MariaDB, sharedMariaDB)
}

// MySQL is [MariaDB] for the server of MySQL, and MILLPOND_TEST_MYSQL_URL.
func MySQL(tb testing.TB) *MySQLServer {
	tb.Helper()
	return openMySQL(tb, mysql.MySQL, sharedMySQL9)
}

func openMySQL(tb testing.TB, product mysql.Product, server *shared.Server) *MySQLServer {
	tb.Helper()
	if url := os.Getenv(product.URLVariable()); url != "" {
		return &MySQLServer{url: url}
	}
	// Here, because what is wrong is easier to read than from the supervisor's log.
	if err := mysql.Install(tb.Context(), product); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	// Not the test's context: the next test uses the server as well.
	url, err := server.Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return &MySQLServer{url: url}
}

// URL returns the address of the server, in no database:
// mysql://user:password@host:port/. mysql.ParseURL of package internal/testenv/mysql
// makes a configuration of the driver from it.
func (s *MySQLServer) URL() string { return s.url }

// NewDatabase creates an empty database, which is dropped when the test ends, and
// returns its address.
func (s *MySQLServer) NewDatabase(tb testing.TB) string {
	tb.Helper()
	url, err := mysql.CreateDatabase(tb.Context(), s.url)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
		defer cancel()
		if err := mysql.DropDatabase(ctx, s.url, url); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return url
}

// PrivateMySQLServer is a server of one test, which may do to it what it wants.
type PrivateMySQLServer struct{ *mysql.Server }

// WithMySQLSettings sets system variables of the server, such as
// innodb_lock_wait_timeout.
func WithMySQLSettings(settings map[string]string) func(*mysql.Config) {
	return func(c *mysql.Config) { c.Settings = settings }
}

// PrivateMariaDB starts a MariaDB server of its own for this test, also when
// MILLPOND_TEST_MARIADB_URL is set, and removes it when the test ends. If the test has
// failed, the end of the server's log is shown.
func PrivateMariaDB(tb testing.TB, options ...func(*mysql.Config)) *PrivateMySQLServer {
	tb.Helper()
	return privateMySQL(tb, mysql.MariaDB, options)
}

// PrivateNewMariaDB is [PrivateMariaDB] for the MariaDB of Debian unstable, in which more
// is as it will be: innodb_snapshot_isolation is on.
func PrivateNewMariaDB(tb testing.TB, options ...func(*mysql.Config)) *PrivateMySQLServer {
	tb.Helper()
	return privateMySQL(tb, mysql.NewMariaDB, options)
}

// PrivateMySQL is [PrivateMariaDB] for the server of MySQL.
func PrivateMySQL(tb testing.TB, options ...func(*mysql.Config)) *PrivateMySQLServer {
	tb.Helper()
	return privateMySQL(tb, mysql.MySQL, options)
}

func privateMySQL(tb testing.TB, product mysql.Product, options []func(*mysql.Config)) *PrivateMySQLServer {
	tb.Helper()
	config := mysql.Config{Product: product}
	for _, option := range options {
		option(&config)
	}
	server, err := mysql.Start(tb.Context(), config)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the server's log ends with:%s", host.Tail(server.LogFile(), 0))
		}
		if err := server.Close(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return &PrivateMySQLServer{server}
}

// NewDatabase creates an empty database and returns its address. It goes with the
// server.
func (s *PrivateMySQLServer) NewDatabase(tb testing.TB) string {
	tb.Helper()
	url, err := s.Server.NewDatabase(tb.Context())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return url
}
