package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// Beside what the conformance suite knows, this is what handlers of pgx can do.

// However a handler leaves a transaction that it has ended on the raw connection, the
// inbox must learn that part of its effects may be committed.
func TestCommitOnTheRawConnectionIsNeverAPlainFailure(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for name, leave := range map[string]func(tx pgx.Tx){
		"nothing":         func(pgx.Tx) {},
		"rows left open":  func(tx pgx.Tx) { _, _ = tx.Query(t.Context(), "SELECT generate_series(1, 100000)") }, //nolint:sqlclosecheck // that is the point
		"an aborted one":  func(tx pgx.Tx) { _, _ = tx.Exec(t.Context(), "SELECT 1/0") },
		"a hidden Commit": func(tx pgx.Tx) { _ = tx.Commit(t.Context()) },
	} {
		for _, rollback := range []bool{false, true} {
			c := pgtest.Claim(name)
			if rollback {
				c = pgtest.Claim(name + ", then an error")
			}
			a, tx := begin(t, s, c)
			for _, text := range []string{"commit", "begin"} {
				if _, err := tx.Conn().Exec(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			leave(tx)
			var err error
			if rollback {
				err = a.Rollback(t.Context())
			} else {
				err = a.Commit(t.Context())
			}
			if !errors.Is(err, stores.ErrTxEscaped) {
				t.Errorf("%s, rollback %v: %v", name, rollback, err)
			}
			if completed, err := s.Resolve(t.Context(), c.Key); err != nil || !completed {
				t.Errorf("%s: %v, %v", name, completed, err)
			}
		}
	}
}

func TestConnectionOutOfReachAfterTheAttempt(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	a, tx := begin(t, s, pgtest.Claim("first"))
	if err := a.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, _ := begin(t, s, pgtest.Claim("second")) // on the same connection
	if tx.Conn() != nil {
		t.Error("a handler that has returned reaches the connection of another message")
	}
	if _, err := tx.Exec(t.Context(), "INSERT INTO effect VALUES ('a', 'b')"); !errors.Is(err, pgx.ErrTxClosed) {
		t.Error(err)
	}
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestInterruptedAttemptsAreTold(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	interrupted := func(a stores.Attempt) bool { return a.(stores.Interruptible).Interrupted() != nil } //nolint:forcetypeassert // a panic is a failure too
	a, tx := begin(t, s, pgtest.Claim("terminated"))
	var pid uint32
	if err := tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Pool().Exec(t.Context(), "SELECT pg_terminate_backend($1)", pid); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Fatal("the backend still answers")
	}
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !interrupted(a) {
		t.Errorf("%v, interrupted %v", err, interrupted(a))
	}
	b, tx := begin(t, s, pgtest.Claim("its own fault"))
	_, _ = tx.Exec(t.Context(), "SELECT 1/0")
	if err := b.Commit(t.Context()); !errors.Is(err, stores.ErrTxAborted) || interrupted(b) {
		t.Errorf("%v, interrupted %v", err, interrupted(b))
	}
}

func TestTablesMadeAnewAreRegisteredAnew(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if _, err := s.Pool().Exec(t.Context(), "DROP TABLE millpond_inbox, millpond_failure, millpond_audit, millpond_consumer, millpond_quarantine, millpond_schema, millpond_outbox, millpond_outbox_history, millpond_outbox_failed, millpond_lease, millpond_process, millpond_once"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Begin(t.Context(), pgtest.Claim("a")); !errors.Is(err, stores.ErrNotMigrated) {
		t.Fatal(err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Begin(t.Context(), pgtest.Claim("a")); !errors.Is(err, stores.ErrNotRegistered) {
		t.Fatal(err)
	}
}
