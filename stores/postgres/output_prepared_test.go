package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// keptStatements are what the store's one connection has prepared for commits.
func keptStatements(t *testing.T, s *postgres.Store) (texts []string) {
	t.Helper()
	rows, err := s.Pool().Query(t.Context(), `SELECT statement FROM pg_prepared_statements
WHERE name LIKE 'millpond%' AND statement NOT LIKE '%inbox%' AND statement <> 'begin'`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, text)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestStatementsOfOutputsArePreparedOnce(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int{"cache_statement": 3, "cache_describe": 0, "exec": 0, "simple_protocol": 0} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1", "default_query_exec_mode", mode))
			for range 3 {
				saying(t, s, false, output("k"))
				saying(t, s, false, output("k"), output("k"))
			}
			if kept := keptStatements(t, s); len(kept) != want {
				t.Errorf("%d statements are kept, want %d: %q", len(kept), want, kept)
			}
		})
	}
}

// A statement that was prepared in the trip of a commit that has failed is there, too. One
// that the server has refused is not.
func TestStatementsOfAFailedCommitAreKept(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	exec := func(sql string) {
		t.Helper()
		if _, err := s.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	fails := func() {
		t.Helper()
		a, _ := begin(t, s, pgtest.Claim("fails"))
		err := a.(stores.Emitter).Emit([]stores.Output{output("k")})
		if err == nil {
			err = a.Commit(t.Context())
		}
		if err == nil {
			t.Error("it is committed")
		}
	}
	exec("ALTER TABLE millpond_outbox RENAME TO elsewhere")
	fails()
	exec("ALTER TABLE elsewhere RENAME TO millpond_outbox")
	exec("ALTER TABLE millpond_outbox ADD CONSTRAINT none CHECK (bytes < 0)")
	fails()
	exec("ALTER TABLE millpond_outbox DROP CONSTRAINT none")
	for range 2 {
		saying(t, s, false, output("k"))
	}
	if kept := strings.Join(keptStatements(t, s), "\n"); strings.Count(kept, "INSERT") != 1 || !strings.Contains(kept, "commit") {
		t.Errorf("kept: %s", kept)
	}
}

// Whoever else discards what was prepared costs a connection one attempt.
func TestStatementsOfOutputsMayBeDiscarded(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	saying(t, s, false, output(""))
	var discard string
	if err := s.Pool().QueryRow(t.Context(), "SELECT 'DEALLOCATE ' || name FROM pg_prepared_statements WHERE statement LIKE 'INSERT INTO%outbox%' AND name LIKE 'millpond%'").Scan(&discard); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pool().Exec(t.Context(), discard); err != nil {
		t.Fatal(err)
	}
	a, _ := begin(t, s, pgtest.Claim("discarded"))
	err := a.(stores.Emitter).Emit([]stores.Output{output("")})
	if err == nil {
		err = a.Commit(t.Context())
	}
	if !errors.Is(err, stores.ErrNotCommitted) {
		t.Errorf("it is said of the commit: %v", err)
	}
	for range 2 {
		saying(t, s, false, output(""))
	}
}

// A handler that discards what was prepared commits all the same.
func TestHandlerMayDiscardStatements(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	saying(t, s, false, output(""))
	a, tx := begin(t, s, pgtest.Claim("discards"))
	_, err := tx.Exec(t.Context(), "DEALLOCATE ALL")
	if err == nil {
		err = a.(stores.Emitter).Emit([]stores.Output{output("")})
	}
	if err == nil {
		err = a.Commit(t.Context())
	}
	if err != nil {
		t.Error(err)
	}
}

// Some programs discard what is prepared each time that a connection is given back.
func TestPoolsMayDiscardStatements(t *testing.T) {
	t.Parallel()
	url := pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1")
	openStore(t, url)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.AfterRelease = func(conn *pgx.Conn) bool { return conn.DeallocateAll(t.Context()) == nil }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Config{})
	if err == nil {
		err = s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"})
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		saying(t, s, false, output("k"))
		if _, err := queued(t, s, uuid.NewString(), queueEffect); err != nil {
			t.Error(err)
		}
	}
}
