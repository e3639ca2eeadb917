package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A range of a sweep reads its own pages and no others, by no index, whatever the tables were
// like when its plan was made.
func TestSweepReadsOnlyThePagesOfItsRange(t *testing.T) {
	t.Parallel()
	const rows = 50_000
	fill := func(s *postgres.Store) {
		exec(t, s.Pool(), `INSERT INTO millpond_inbox (consumer, message_id, status, completed_at)
SELECT id, int4send(n), 2, now() - interval '8 days' FROM millpond_consumer, generate_series(1, 50000) n`)
	}
	analyze := func(s *postgres.Store) { exec(t, s.Pool(), "ANALYZE") }
	for name, prepare := range map[string]func(s *postgres.Store){
		"never analyzed":           fill,
		"analyzed when full":       func(s *postgres.Store) { fill(s); analyze(s) },
		"analyzed when it was new": func(s *postgres.Store) { analyze(s); fill(s) },
	} {
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "plan_cache_mode", mode, "pool_max_conns", "1"))
			prepare(s)
			exec(t, s.Pool(), "UPDATE millpond_consumer SET purged_through = now()")
			survey, purge := s.RangeStatements()
			var limits string
			err := s.Pool().QueryRow(t.Context(), `SELECT format('ARRAY[%s], ARRAY[%s]', id, extract(epoch from now())::bigint * 1000000) FROM millpond_consumer`).Scan(&limits)
			if err != nil {
				t.Fatal(err)
			}
			const of = "(tid, tid, bigint[], bigint[]"
			for call, statement := range map[string]string{
				"survey": of + ", bigint) AS " + survey,
				"purge":  of + ") AS " + purge,
			} {
				arguments := "('(15,0)', '(30,0)', " + limits
				if call == "survey" {
					arguments += ", 0"
				}
				exec(t, s.Pool(), "PREPARE "+call+statement)
				plan := executed(t, s, call+arguments+")")
				if !strings.Contains(plan, "Tid Range Scan on millpond_inbox") {
					t.Errorf("%s, %s, %s: no range of %d rows is read:\n%s", call, name, mode, rows, plan)
				}
			}
		}
	}
}

// A claim that is compared with what was purged costs nothing more.
func TestTimeOfADeliveryCostsNothing(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	alone := pgtest.WarmedUp(t, proxy, func() { withoutInbox(t, s) })
	if err := s.Announce(t.Context(), pgtest.Stock, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	inbox := pgtest.WarmedUp(t, proxy, func() {
		id := uuid.NewString()
		c := pgtest.Claim(id)
		c.Time = time.Now()
		a, tx := begin(t, s, c)
		if _, err := tx.Exec(t.Context(), insertEffect, id); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if inbox.RoundTrips != alone.RoundTrips || inbox.Commits != alone.Commits || inbox.Rollbacks != 0 {
		t.Errorf("with a time: %+v, the handler alone: %+v", inbox, alone)
	}
}

// A claim that began before the announcement, and waits for a delete that it does not see, runs
// what was purged. So a sweeper waits for it, and announces in a commit of its own.
func TestClaimThatHasNotSeenTheAnnouncement(t *testing.T) {
	t.Parallel()
	for name, ownCommit := range map[string]bool{"announced with the delete": false, "announced before, and not waited for": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
			took := time.Now().Add(-8 * 24 * time.Hour)
			c := pgtest.Claim("old")
			c.Time = took
			a, _ := begin(t, s, c)
			if err := a.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			purge, err := s.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = purge.Rollback(context.WithoutCancel(t.Context())) }()
			if !ownCommit {
				exec(t, purge, "UPDATE millpond_consumer SET purged_through = now()")
			}
			exec(t, purge, "DELETE FROM millpond_inbox")
			claimed := make(chan stores.Outcome, 1)
			go func() {
				attempt, v, err := s.Begin(t.Context(), c)
				if err != nil {
					t.Error(err)
				}
				claimed <- v.Outcome
				if attempt != nil {
					_ = attempt.Rollback(context.WithoutCancel(t.Context()))
				}
			}()
			testenv.Eventually(t, "the claim waits for the delete", func() bool {
				var waits bool
				err := s.Pool().QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits)
				return err == nil && waits
			})
			if ownCommit { // the real one
				if err := s.Announce(t.Context(), pgtest.Stock, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			mark, over, err := s.Overtaken(t.Context(), "")
			if over || err != nil {
				t.Errorf("Overtaken = %t, %v, and a claim waits that has not seen the announcement", over, err)
			}
			if err := purge.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if outcome := <-claimed; outcome != stores.Claimed {
				t.Errorf("the claim is %s: nothing needs to be waited for", outcome)
			}
			testenv.Eventually(t, "the claim is over", func() bool {
				_, over, err := s.Overtaken(t.Context(), mark)
				return over && err == nil
			})
			if _, v, err := s.Begin(t.Context(), c); err != nil || v.Outcome != stores.Stale {
				t.Errorf("a claim after that is %s, %v", v.Outcome, err)
			}
		})
	}
}
