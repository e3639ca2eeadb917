package crash

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite", for looking from outside

	"github.com/millpond-go/millpond/stores/sqlite"
)

// newSQLite is a database file.
func newSQLite(t *testing.T) *system {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crash.db")
	store, err := sqlite.New(t.Context(), path, sqlite.Config{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	admin, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(30000)")
	if err != nil {
		t.Fatal(err)
	}
	return newSystem(t, "sqlite", "sqlite://"+path, admin, sqliteDialect)
}

// openAgain is the pause before what could not be opened is opened again.
const openAgain = 20 * time.Millisecond

// openSQLite tries again while a stopped process keeps the file locked.
func openSQLite(ctx context.Context, rawURL string, _ int) (*backend, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	store, err := untilUp(ctx, func() (*sqlite.Store, error) {
		return sqlite.New(ctx, u.Path, sqlite.Config{BusyTimeout: 100 * time.Millisecond})
	})
	if err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+u.Path+"?_txlock=immediate&_pragma=busy_timeout(100)&_pragma=foreign_keys(1)")
	return sqlBackend(store, db, sqliteDialect, sqlite.Handler, sqlite.TxFromContext), err
}
