package crash

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/millpond-go/millpond/internal/testenv"
	mysqlserver "github.com/millpond-go/millpond/internal/testenv/mysql"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
)

// newMariaDB is a database on the server that all tests share.
func newMariaDB(t *testing.T) *system {
	t.Helper()
	return onMySQL(t, "mariadb", testenv.MariaDB(t).NewDatabase(t))
}

// newProxiedMariaDB is the same behind a proxy.
func newProxiedMariaDB(t *testing.T) *system {
	t.Helper()
	return newMariaDB(t).behindProxy(t)
}

// newFragileMariaDB is a server of its own behind a proxy, both of which may be hurt.
func newFragileMariaDB(t *testing.T) *system {
	t.Helper()
	server := testenv.PrivateMariaDB(t)
	s := onMySQL(t, "mariadb", server.NewDatabase(t))
	s.server = server
	return s.behindProxy(t)
}

// newProxiedMySQL and newFragileMySQL are for MySQL itself.

func newProxiedMySQL(t *testing.T) *system {
	t.Helper()
	return onMySQL(t, "mysql", testenv.MySQL(t).NewDatabase(t)).behindProxy(t)
}

func newFragileMySQL(t *testing.T) *system {
	t.Helper()
	server := testenv.PrivateMySQL(t)
	s := onMySQL(t, "mysql", server.NewDatabase(t))
	s.server = server
	return s.behindProxy(t)
}

func onMySQL(t *testing.T, name, databaseURL string) *system {
	t.Helper()
	return onMySQLAs(t, name, databaseURL, mysqlDialect)
}

func onMySQLAs(t *testing.T, name, databaseURL string, d dialect) *system {
	t.Helper()
	store, err := mysql.Open(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	admin, err := mysqlserver.Open(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	admin.SetMaxOpenConns(1) // so that it knows which session not to end
	return newSystem(t, name, databaseURL, admin, d)
}

// openMySQL opens a store on connections of its own.
func openMySQL(ctx context.Context, rawURL string, _ int) (*backend, error) {
	rawURL = withParameters(rawURL, map[string]string{"timeout": "2s"})
	storeURL := withParameters(rawURL, map[string]string{"max_open_conns": fmt.Sprint(maxConns)})
	store, err := untilUp(ctx, func() (*mysql.Store, error) { return mysql.Open(ctx, storeURL) })
	if err != nil {
		return nil, err
	}
	db, err := mysqlserver.Open(rawURL)
	if err != nil {
		return nil, err
	}
	return sqlBackendOfMySQL(store, db, mysqlDialect), nil
}

func sqlBackendOfMySQL(store stores.Store, db *sql.DB, d dialect) *backend {
	return sqlBackend(store, db, d, mysql.Handler, mysql.TxFromContext)
}
