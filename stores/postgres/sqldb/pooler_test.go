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

// A pooler answers for a server that has gone away in the middle of COMMIT. What it says has
// a code, but is no proof of anything: here the transaction is committed.
func TestPoolersWordOnALostCommitProvesNothing(t *testing.T) {
	for _, e := range some(t, 1,
		connector.behindPgBouncer("pgbouncer", "transaction"),
		callersPG.behindPgBouncer("default_query_exec_mode", "cache_describe"),
		callersPQ.behindPgBouncer("binary_parameters", "yes"),
	) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.PrivatePostgres(t)
			address := server.NewDatabase(t)
			direct := newStore(t, connector, address)
			s := newStore(t, e, pgtest.WithParameters(t, testenv.PgBouncer(t, address).URL(), e.pooled...))
			a, tx := begin(t, s, pgtest.Claim("lost"))
			if err := insert(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()"} {
				if _, err := direct.DB().ExecContext(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			for standby := ""; standby != "away"; { // until its backend has read the setting
				if err := tx.QueryRowContext(t.Context(), "SELECT current_setting('synchronous_standby_names')").Scan(&standby); err != nil {
					t.Fatal(err)
				}
			}
			const waiting = "SELECT count(*) = %d FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
			go commitUntilOneWaits(t.Context(), direct.DB()) // which takes the checkpointer, too
			until(t, direct, fmt.Sprintf(waiting, 1))
			said := make(chan error, 1)
			go func() { said <- a.Commit(t.Context()) }()
			until(t, direct, fmt.Sprintf(waiting, 2))
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-said; !errors.Is(err, stores.ErrCommitUnknown) || errors.Is(err, stores.ErrNotCommitted) {
				t.Errorf("%v", err)
			}
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = direct.DB().Close()
			if n := effects(t, newStore(t, callersPQ, pgtest.WithParameters(t, address, "options", "-csynchronous_commit=local"))); n != 1 {
				t.Errorf("%d effects", n)
			}
		})
	}
}

// commitUntilOneWaits commits until a commit waits, and returns when the server is killed.
func commitUntilOneWaits(ctx context.Context, db *sql.DB) {
	for {
		if _, err := db.ExecContext(ctx, "SELECT pg_logical_emit_message(true, '', '')"); err != nil {
			return
		}
	}
}

// Nor may a pooler that refuses before COMMIT was sent be believed to have committed.
func TestServerThatIsGoneBehindAPoolerCommitsNothing(t *testing.T) {
	for _, e := range some(t, 1,
		connector.behindPgBouncer("pgbouncer", "transaction"),
		callersPG.behindPgBouncer("default_query_exec_mode", "cache_describe"),
		callersPQ.behindPgBouncer("binary_parameters", "yes"),
	) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			server := testenv.PrivatePostgres(t)
			address := server.NewDatabase(t)
			s := newStore(t, e, pgtest.WithParameters(t, testenv.PgBouncer(t, address).URL(), e.pooled...))
			a, tx := begin(t, s, pgtest.Claim("gone"))
			if err := insert(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := a.Commit(t.Context()); err == nil {
				t.Error("committed")
			}
			// The pooler has the client wait for its server now.
			for name, call := range map[string]func(context.Context) error{
				"claim":    func(ctx context.Context) error { _, _, err := s.Begin(ctx, pgtest.Claim("waits")); return err },
				"register": func(ctx context.Context) error { return s.Register(ctx, stores.Registration{Consumer: pgtest.Stock}) },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				begun := time.Now()
				err := call(ctx)
				cancel()
				if took := time.Since(begun); took > 15*time.Second || !errors.Is(err, stores.ErrUnavailable) {
					t.Errorf("%s took %s: %v", name, took, err)
				}
			}
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := effects(t, newStore(t, connector, address)); n != 0 {
				t.Errorf("%d effects", n)
			}
			for begun := time.Now(); time.Since(begun) < time.Minute; { // the pooler tries its server now and then
				if a, _, err := s.Begin(t.Context(), pgtest.Claim("waits")); err == nil {
					if err := a.Rollback(t.Context()); err != nil {
						t.Error(err)
					}
					if s.PoolUse().InUse == 0 { // calls that were given up end when the pooler lets them
						return
					}
				}
			}
			t.Errorf("no claim any more, or a connection is kept: %+v", s.PoolUse())
		})
	}
}
