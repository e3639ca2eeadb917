package testenv

import (
	"testing"

	"github.com/millpond-go/millpond/internal/testenv/host"
	"github.com/millpond-go/millpond/internal/testenv/pgbouncer"
)

// WithPreparedStatements asks for a PgBouncer that follows prepared statements.
func WithPreparedStatements() func(*pgbouncer.Config) {
	return func(c *pgbouncer.Config) { c.PreparedStatements = true }
}

// WithPgBouncerSettings sets parameters of pgbouncer.ini, such as default_pool_size.
func WithPgBouncerSettings(settings map[string]string) func(*pgbouncer.Config) {
	return func(c *pgbouncer.Config) { c.Settings = settings }
}

// PgBouncer starts a PgBouncer in transaction pooling before the server of a database,
// such as one of [Postgres], and removes it when the test ends. Its URL leads to that
// database. Without options it is the distribution's, before which clients must not
// prepare statements. If the test has failed, the end of its log is shown.
func PgBouncer(tb testing.TB, databaseURL string, options ...func(*pgbouncer.Config)) *pgbouncer.Server {
	tb.Helper()
	config := pgbouncer.Config{DatabaseURL: databaseURL}
	for _, option := range options {
		option(&config)
	}
	server, err := pgbouncer.Start(tb.Context(), config)
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("testenv: the log of PgBouncer ends with:%s", host.Tail(server.LogFile(), 0))
		}
		if err := server.Close(); err != nil {
			tb.Errorf("testenv: %v", err)
		}
	})
	return server
}
