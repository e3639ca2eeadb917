// Package pgtest is what the tests of both PostgreSQL stores share, the one on pgx and
// the one on database/sql: the databases that the conformance suite runs on, what
// dishonest handlers do in SQL, and the claims of tests.
package pgtest

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the suite reads through database/sql

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/storetest"
)

// NewDatabase prepares the empty database at address for the conformance suite, and for
// [Acts]. The caller adds Open and StrictIsolation.
func NewDatabase(tb testing.TB, address string) *storetest.Database {
	tb.Helper()
	admin, err := sql.Open("pgx", address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { admin.Close() })
	for _, text := range []string{
		"CREATE TABLE storetest_many (n bigint)",
		"CREATE TABLE storetest_pair (id integer PRIMARY KEY, n integer NOT NULL)",
		"INSERT INTO storetest_pair VALUES (1, 0), (2, 0)",
		"CREATE TABLE storetest_deferred (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)",
		"CREATE PROCEDURE storetest_commits() LANGUAGE plpgsql AS 'BEGIN COMMIT; END'",
	} {
		if _, err := admin.ExecContext(tb.Context(), text); err != nil {
			tb.Fatal(err)
		}
	}
	return &storetest.Database{Admin: admin}
}

// AddFaults lets the server of db be killed, and turned into a standby, which takes no
// writes.
func AddFaults(db *storetest.Database, server *testenv.PrivatePostgresServer) {
	fatal := func(tb testing.TB, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	db.Outage = func(tb testing.TB) func() {
		tb.Helper()
		fatal(tb, server.Kill())
		return func() { fatal(tb, server.Start(tb.Context())) }
	}
	db.ReadOnly = func(tb testing.TB) func() {
		tb.Helper()
		var data string
		fatal(tb, db.Admin.QueryRowContext(tb.Context(), "SHOW data_directory").Scan(&data))
		fatal(tb, server.Stop(tb.Context()))
		fatal(tb, becomeStandby(data))
		fatal(tb, server.Start(tb.Context()))
		return func() {
			var promoted bool
			conn, err := pgx.Connect(tb.Context(), server.URL())
			fatal(tb, err)
			defer conn.Close(tb.Context())
			fatal(tb, conn.QueryRow(tb.Context(), "SELECT pg_promote()").Scan(&promoted))
			if !promoted {
				tb.Fatal("the standby was not promoted")
			}
		}
	}
}

// becomeStandby makes the server start in recovery, without an upstream.
func becomeStandby(data string) error {
	signal := filepath.Join(data, "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	info, err := os.Stat(data)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Chown(signal, int(owner.Uid), int(owner.Gid))
	}
	return nil
}

// Impatient lets commits return before they are on the disk, for servers that are not
// killed. Nothing that is checked on them depends on it.
func Impatient(tb testing.TB, address string) string {
	tb.Helper()
	return WithParameters(tb, address, "synchronous_commit", "off")
}

// WithParameters returns the address with pairs of names and values set in its query.
func WithParameters(tb testing.TB, address string, pairs ...string) string {
	tb.Helper()
	u, err := url.Parse(address)
	if err != nil {
		tb.Fatal(err)
	}
	query := u.Query()
	for pair := range slices.Chunk(pairs, 2) {
		query.Set(pair[0], pair[1])
	}
	u.RawQuery = query.Encode()
	return u.String()
}
