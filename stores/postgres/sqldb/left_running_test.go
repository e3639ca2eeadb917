package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// leftRunning has a goroutine of the handler in the middle of a statement, on the server
// too, and returns the server's process.
func leftRunning(t *testing.T, s interface{ DB() *sql.DB }, tx *sql.Tx) (pid int) {
	t.Helper()
	if err := tx.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = tx.ExecContext(context.Background(), "SELECT pg_sleep(300)") }()
	until(t, s, fmt.Sprintf("SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = %d AND wait_event = 'PgSleep'", pid))
	return pid
}

func until(t *testing.T, s interface{ DB() *sql.DB }, question string) {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; {
		var yes bool
		if err := s.DB().QueryRowContext(t.Context(), question).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		if yes {
			return
		}
	}
	t.Fatalf("%s: never", question)
}

// Nobody waits for a statement that a handler has left running for longer than the end of
// its attempt may take.
func TestStatementLeftRunningIsNotWaitedFor(t *testing.T) {
	for _, e := range some(t, 2, connector, callersPG, callersPG.unproven(), callersPQ, callersPQ.unproven()) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, e, testenv.VolatilePostgres(t).NewDatabase(t))
			for name, end := range map[string]func(stores.Attempt, context.Context) error{
				"commit": stores.Attempt.Commit, "rollback": stores.Attempt.Rollback,
			} {
				a, tx := begin(t, s, pgtest.Claim(name))
				if err := insert(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				pid := leftRunning(t, s, tx)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				begun := time.Now()
				err := end(a, ctx)
				cancel()
				if took := time.Since(begun); took > 20*time.Second {
					t.Errorf("%s took %s", name, took)
				}
				if !errors.Is(err, stores.ErrTxBusy) || errors.Is(err, stores.ErrCommitUnknown) || name == "commit" && !errors.Is(err, stores.ErrNotCommitted) {
					t.Errorf("%s: %v", name, err)
				}
				if e.callers && !errors.Is(err, stores.ErrTxEscaped) {
					t.Errorf("%s: %v", name, err)
				}
				if again := a.Commit(t.Context()); name == "commit" && !errors.Is(again, stores.ErrTxBusy) {
					t.Errorf("%s, asked again: %v", name, again)
				}
				until(t, s, fmt.Sprintf("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %d", pid))
				comesAgain(t, s, pgtest.Claim(name))
			}
			if n := effects(t, s); n != 0 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// Nor does a handler run again whose writes may have committed by themselves before.
func TestStatementLeftRunningHidesNoEscape(t *testing.T) {
	for _, e := range some(t, 2, callersPG, callersPG.unproven(), callersPQ, callersPQ.unproven()) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, e, testenv.Postgres(t).NewDatabase(t))
			for name, end := range map[string]func(stores.Attempt, context.Context) error{
				"commit": stores.Attempt.Commit, "rollback": stores.Attempt.Rollback,
			} {
				a, tx := begin(t, s, pgtest.Claim(name))
				if _, err := tx.ExecContext(t.Context(), "ROLLBACK"); err != nil {
					t.Fatal(err)
				}
				if err := insert(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				leftRunning(t, s, tx)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err := end(a, ctx)
				cancel()
				if !errors.Is(err, stores.ErrTxEscaped) || errors.Is(err, stores.ErrCommitUnknown) {
					t.Errorf("%s: %v", name, err)
				}
				escaped, err := a.(stores.Escapable).Escaped(t.Context()) //nolint:forcetypeassert // a panic is a failure too
				if err != nil || !escaped {
					t.Errorf("%s: %v, %v", name, escaped, err)
				}
				if v := pgtest.Verdict(t, s, pgtest.Claim(name)); v.Outcome != stores.Duplicate {
					t.Errorf("%s: %v", name, v.Outcome)
				}
			}
		})
	}
}

// Whoever gives up a COMMIT that waits for a synchronous standby must not end the server's
// wait.
func TestCommitThatWaitsForAStandbyIsNotCancelled(t *testing.T) {
	for _, e := range some(t, 1, connector, callersPG, callersPQ) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, e, testenv.PrivatePostgres(t).NewDatabase(t))
			standby := func(name string) {
				for _, text := range []string{"ALTER SYSTEM SET synchronous_standby_names = '" + name + "'", "SELECT pg_reload_conf()"} {
					if _, err := s.DB().ExecContext(t.Context(), text); err != nil {
						t.Fatal(err)
					}
				}
			}
			standby("away")
			var err error
			for i, begun := 0, time.Now(); err == nil && time.Since(begun) < 30*time.Second; i++ { // until the server has read its settings
				a, tx := begin(t, s, pgtest.Claim(fmt.Sprint(i)))
				if err := insert(t.Context(), tx); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				err = a.Commit(ctx)
				cancel()
			}
			if !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
				t.Error(err)
			}
			var n int
			if err := s.DB().QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'").Scan(&n); err != nil || n != 1 {
				t.Errorf("%d commits wait for the standby, %v", n, err)
			}
			standby("")
		})
	}
}
