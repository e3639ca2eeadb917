package testenv_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/pgbouncer"
)

// prepareOnMany prepares and runs statements on more clients than there are connections
// to the server, and returns the first error.
func prepareOnMany(t *testing.T, url string, mode pgx.QueryExecMode) error {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = mode
	const clients, rounds = 8, 20
	failures := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			conn, err := pgx.ConnectConfig(t.Context(), config.Copy())
			if err != nil {
				failures[i] = err
				return
			}
			defer conn.Close(context.Background())
			for range rounds {
				if _, err := conn.Exec(t.Context(), "SELECT $1::int + 1", i); err != nil {
					failures[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(failures...)
}

// What each PgBouncer allows is what tests through it are about.
func TestPgBouncer(t *testing.T) {
	database := testenv.Postgres(t).NewDatabase(t)
	for name, options := range map[string][]func(*pgbouncer.Config){
		"without prepared statements": nil,
		"with prepared statements":    {testenv.WithPreparedStatements()},
	} {
		t.Run(name, func(t *testing.T) {
			server := testenv.PgBouncer(t, database, options...)
			t.Logf("it is version %s", server.Version())
			if err := prepareOnMany(t, server.URL(), pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Errorf("with the simple protocol: %v", err)
			}
			err := prepareOnMany(t, server.URL(), pgx.QueryExecModeCacheStatement)
			var pgErr *pgconn.PgError
			if prepares := options != nil; prepares && err != nil {
				t.Errorf("with prepared statements: %v", err)
			} else if !prepares && !errors.As(err, &pgErr) {
				t.Errorf("prepared statements without support for them: %v", err)
			}
		})
	}
}

// Two transactions of one client run on two connections of the server.
func TestPgBouncerPoolsTransactions(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PgBouncer(t, testenv.Postgres(t).NewDatabase(t), testenv.WithPgBouncerSettings(map[string]string{"min_pool_size": "2"}))
	config, err := pgx.ParseConfig(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	var conns [2]*pgx.Conn
	for i := range conns {
		if conns[i], err = pgx.ConnectConfig(t.Context(), config.Copy()); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close(context.Background())
	}
	exec(t, conns[0], "BEGIN") // on the connection that it gives back at the end
	backend := queryString(t, conns[0], "SELECT pg_backend_pid()::text")
	exec(t, conns[1], "BEGIN") // on another, therefore
	exec(t, conns[1], "COMMIT")
	exec(t, conns[0], "COMMIT")
	testenv.Eventually(t, "the client is on another connection", func() bool {
		return queryString(t, conns[0], "SELECT pg_backend_pid()::text") != backend
	})
}

func TestPgBouncerIsKilled(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	server := testenv.PgBouncer(t, testenv.Postgres(t).NewDatabase(t))
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.Connect(t.Context(), server.URL()); err == nil {
		t.Error("a killed PgBouncer answers")
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	connect(t, server.URL())
}

func TestPgBouncerNeedsAURL(t *testing.T) {
	for _, wrong := range []string{"", "host=127.0.0.1 password=secret"} {
		if _, err := pgbouncer.Start(t.Context(), pgbouncer.Config{DatabaseURL: wrong}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
