package crash

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for looking from outside
	_ "modernc.org/sqlite"             // the driver "sqlite", likewise

	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// system is a database under test, with the tables of store and service.
type system struct {
	name  string
	url   string  // for workers
	admin *sql.DB // for the parent, past all faults

	dialect dialect

	server *testenv.PrivatePostgresServer // nil if it must not be hurt
	proxy  *pgproxy.Proxy                 // nil without
}

// schema is what the service writes to. Nothing in it is unique that could keep an
// effect from happening twice.
const schema = `
CREATE TABLE effect (consumer text NOT NULL, id text NOT NULL, part integer NOT NULL, run text NOT NULL, payload text NOT NULL);
CREATE INDEX effect_id ON effect (id);
CREATE TABLE stock (consumer text NOT NULL, item integer NOT NULL, sold integer NOT NULL);
CREATE INDEX stock_item ON stock (item);
CREATE TABLE taken (n integer PRIMARY KEY);
INSERT INTO taken VALUES (1);
CREATE TABLE parent (n integer PRIMARY KEY);
CREATE TABLE child (n integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
`

// items is how many rows share the counting.
const items = 32

func (s *system) create(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { _ = s.admin.Close() })
	statements := []string{schema}
	if s.dialect.sequence == postgresDialect.sequence {
		statements = append(statements, "ALTER TABLE effect ADD seq bigserial")
	}
	for _, consumer := range consumers {
		for item := range items {
			statements = append(statements, fmt.Sprintf("INSERT INTO stock VALUES ('%s', %d, 0)", consumer, item))
		}
	}
	for _, statement := range statements {
		if _, err := s.admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

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
	s := &system{name: "sqlite", url: "sqlite://" + path, admin: admin, dialect: sqliteDialect}
	s.create(t)
	return s
}

// newPostgres is a database on the server that all tests share.
func newPostgres(t *testing.T) *system {
	t.Helper()
	return onPostgres(t, testenv.Postgres(t).NewDatabase(t))
}

// newProxiedPostgres is the same behind a proxy.
func newProxiedPostgres(t *testing.T) *system {
	t.Helper()
	s := newPostgres(t)
	s.behindProxy(t)
	return s
}

// newFragilePostgres is a server of its own behind a proxy, both of which may be hurt.
func newFragilePostgres(t *testing.T) *system {
	t.Helper()
	server := testenv.PrivatePostgres(t, testenv.WithSettings(map[string]string{"track_commit_timestamp": "on"}))
	s := onPostgres(t, server.NewDatabase(t))
	s.server = server
	s.behindProxy(t)
	return s
}

func onPostgres(t *testing.T, databaseURL string) *system {
	t.Helper()
	store, err := postgres.Open(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &system{name: "postgres", url: databaseURL, admin: openAdmin(t, databaseURL), dialect: postgresDialect}
	s.create(t)
	return s
}

func openAdmin(t *testing.T, databaseURL string) *sql.DB {
	t.Helper()
	admin, err := sql.Open("pgx", withParameter(t, databaseURL, "application_name", adminName))
	if err != nil {
		t.Fatal(err)
	}
	return admin
}

// adminName tells the parent's sessions from the workers'.
const adminName = "crash-admin"

func withParameter(t *testing.T, rawURL, name, value string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// behindProxy puts a proxy between the workers and the server.
func (s *system) behindProxy(t *testing.T) {
	t.Helper()
	proxy, err := pgproxy.Start(s.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := proxy.Close(); err != nil {
			t.Error(err)
		}
	})
	s.proxy, s.url = proxy, proxy.URL()
}

// modes are pgx's ways to send a statement. Each worker uses another one, since their
// COMMITs look different on the wire.
var modes = []string{"cache_statement", "cache_describe", "exec", "simple_protocol"}

// workerURL is the address for one worker.
func workerURL(base string, worker int) string {
	u, err := url.Parse(base)
	if err != nil || u.Scheme == "sqlite" {
		return base
	}
	query := u.Query()
	query.Set("default_query_exec_mode", modes[worker%len(modes)])
	query.Set("connect_timeout", "2")
	query.Set("pool_max_conns", "16")
	u.RawQuery = query.Encode()
	return u.String()
}

// sessions shows what the server is doing.
func (s *system) sessions(t *testing.T) string {
	t.Helper()
	if s.name == "sqlite" {
		return "sqlite has no sessions to show"
	}
	text := "sessions:\n"
	err := query(t.Context(), s.admin, `SELECT a.pid, coalesce(a.state, ''), coalesce(a.wait_event, ''), coalesce(now() - a.xact_start, '0')::text, a.query,
(SELECT count(*) FROM pg_locks l WHERE l.pid = a.pid AND l.locktype = 'advisory')
FROM pg_stat_activity a WHERE a.datname = current_database() ORDER BY 1`, func(rows *sql.Rows) error {
		var (
			pid, locks               int
			state, wait, since, what string
		)
		err := rows.Scan(&pid, &state, &wait, &since, &what, &locks)
		text += fmt.Sprintf("  %d %s, waits for %q, in a transaction for %s, %d advisory locks: %.100s\n", pid, state, wait, since, locks, what)
		return err
	})
	if err != nil {
		text += err.Error()
	}
	return text
}
