package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
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
				lines, err := s.Pool().Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF) EXECUTE "+call+arguments+")", pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					t.Fatal(err)
				}
				all, err := pgx.CollectRows(lines, pgx.RowTo[string])
				if err != nil {
					t.Fatal(err)
				}
				plan := strings.Join(all, "\n")
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
