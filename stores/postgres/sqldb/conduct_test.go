package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// Beside what the conformance suite knows, this is what handlers of database/sql can do.

func TestOwnCommitIsRefused(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.VolatilePostgres(t).NewDatabase(t))
	for name, end := range map[string]func(*sql.Tx) error{"Commit": (*sql.Tx).Commit, "Rollback": (*sql.Tx).Rollback} {
		a, tx := begin(t, s, pgtest.Claim(name))
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO effect VALUES ('a', 'done')"); err != nil {
			t.Fatal(err)
		}
		if err := end(tx); !errors.Is(err, stores.ErrTxManaged) {
			t.Errorf("%s: %v", name, err)
		}
		if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !errors.Is(err, stores.ErrTxManaged) || errors.Is(err, stores.ErrTxEscaped) {
			t.Errorf("%s: %v", name, err)
		}
		if v := pgtest.Verdict(t, s, pgtest.Claim(name)); v.Outcome != stores.Claimed || effects(t, s) != 0 {
			t.Errorf("%s: %v, %d effects", name, v.Outcome, effects(t, s))
		}
	}
}

// What a handler does after it has ended the transaction by SQL commits by itself. Such
// a message must not run again.
func TestHandlerThatGoesOnWithoutATransactionRunsOnce(t *testing.T) {
	t.Parallel()
	for _, e := range []entry{callersPG.unproven(), callersPQ.unproven()} {
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		for _, rollback := range []bool{false, true} {
			c := pgtest.Claim("loose")
			if rollback {
				c = pgtest.Claim("loose, then an error")
			}
			a, tx := begin(t, s, c)
			for _, text := range []string{"ROLLBACK", "INSERT INTO effect VALUES ('a', 'done')"} {
				if _, err := tx.ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if rollback {
				err = a.Rollback(t.Context())
			} else {
				err = a.Commit(t.Context())
			}
			if !errors.Is(err, stores.ErrTxEscaped) {
				t.Errorf("%s: %v", e.name, err)
			}
			escaped, err := a.(stores.Escapable).Escaped(t.Context()) //nolint:forcetypeassert // a panic is a failure too
			if err != nil || !escaped {
				t.Errorf("%s: %v, %v", e.name, escaped, err)
			}
			if v := pgtest.Verdict(t, s, c); v.Outcome != stores.Duplicate {
				t.Errorf("%s: %v", e.name, v.Outcome)
			}
		}
	}
}

// The database's own failures are no attempts.
func TestInterruptedAttemptsAreTold(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		for text, want := range map[string]bool{
			"DO $$ BEGIN RAISE SQLSTATE '40001'; END $$": true,
			"SELECT 1/0": false,
		} {
			a, _ := begin(t, s, pgtest.Claim(text))
			msg := message.NewMessage("", nil)
			msg.SetContext(a.Context(t.Context()))
			err := sqldb.Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
				_, err := tx.ExecContext(ctx, text)
				return err
			})(msg)
			if err == nil {
				t.Fatal("the statement did not fail")
			}
			_ = a.Rollback(t.Context())
			if got := a.(stores.Interruptible).Interrupted() != nil; got != want { //nolint:forcetypeassert // a panic is a failure too
				t.Errorf("%s: interrupted %v", text, got)
			}
		}
	})
}

// What a savepoint has undone says nothing about how the attempt has ended.
func TestFailureUndoneBySavepointIsForgotten(t *testing.T) {
	entries(t, func(t *testing.T, e entry) {
		t.Helper()
		s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
		other, err := s.DB().BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Rollback() // it has nothing to lose
		if _, err := other.ExecContext(t.Context(), "LOCK TABLE effect"); err != nil {
			t.Fatal(err)
		}
		a, _ := begin(t, s, pgtest.Claim("handled"))
		msg := message.NewMessage("", nil)
		msg.SetContext(a.Context(t.Context()))
		err = sqldb.Handler(func(ctx context.Context, tx *sql.Tx, _ *message.Message) error {
			if _, err := tx.ExecContext(ctx, "SAVEPOINT a"); err != nil {
				t.Error(err)
			}
			if _, err := tx.ExecContext(ctx, "LOCK TABLE effect NOWAIT"); err == nil {
				t.Error("the lock was free")
			}
			if _, err := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT a"); err != nil {
				t.Error(err)
			}
			return errors.New("no such customer")
		})(msg)
		if err == nil {
			t.Fatal("the handler did not fail")
		}
		_ = a.Rollback(t.Context())
		if err := a.(stores.Interruptible).Interrupted(); err != nil { //nolint:forcetypeassert // a panic is a failure too
			t.Error(err)
		}
	})
}

// A statement that was prepared before the claim cannot end its transaction either.
func TestStatementPreparedBeforeIsWatched(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.VolatilePostgres(t).NewDatabase(t))
	stmt, err := s.DB().PrepareContext(t.Context(), "COMMIT")
	if err != nil {
		t.Fatal(err)
	}
	defer stmt.Close()
	a, tx := begin(t, s, pgtest.Claim("a"))
	if _, err := tx.StmtContext(t.Context(), stmt).ExecContext(t.Context()); !errors.Is(err, stores.ErrTxManaged) { //nolint:sqlclosecheck // the transaction closes it
		t.Error(err)
	}
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrTxManaged) {
		t.Error(err)
	}
}

// What looks like one statement to a reader of its text, and is several to the server, is
// found out at the commit.
func TestRollbackHiddenInAStringIsFoundOut(t *testing.T) {
	t.Parallel()
	s := newStore(t, connector, testenv.VolatilePostgres(t).NewDatabase(t))
	for name, texts := range map[string][]string{
		"continued on another line": {"SELECT E'a'\n'\\'' ; ROLLBACK; BEGIN; -- '"},
		"by a setting":              {"SET LOCAL standard_conforming_strings = off", `SELECT '\'' ; ROLLBACK; BEGIN; -- '`},
	} {
		a, tx := begin(t, s, pgtest.Claim(name))
		for _, text := range append(texts, "INSERT INTO effect VALUES ('a', 'done')") {
			if _, err := tx.ExecContext(t.Context(), text); err != nil {
				t.Fatalf("%s: %s: %v", name, text, err)
			}
		}
		if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !errors.Is(err, stores.ErrTxEnded) {
			t.Errorf("%s: %v", name, err)
		}
		if v := pgtest.Verdict(t, s, pgtest.Claim(name)); v.Outcome != stores.Claimed || effects(t, s) != 0 {
			t.Errorf("%s: %v, %d effects", name, v.Outcome, effects(t, s))
		}
	}
}
