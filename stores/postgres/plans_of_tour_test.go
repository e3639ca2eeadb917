package postgres_test

import (
	"strings"
	"testing"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// What a connection planned while the tables were small is as good when a consumer has many messages,
// completed and failed: no statement reads them all.
func TestNothingPlannedOnSmallTablesReadsAllOfLargeOnes(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "plan_cache_mode", "force_generic_plan", "pool_max_conns", "2"))
	tour := func() { pgtest.Tour(t, s, func(stores.Attempt) {}) }
	tour()
	for table := range strings.FieldsSeq("once failure inbox quarantine audit") {
		exec(t, s.Pool(), "DELETE FROM millpond_"+table)
	}
	fillDueIn(t, s, "interval '1 hour'", 1, rows)
	read := func() (rows int64) {
		exec(t, s.Pool(), "SELECT pg_stat_force_next_flush()")
		if err := s.Pool().QueryRow(t.Context(), `SELECT sum(seq_tup_read) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes) FROM pg_stat_user_tables`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	before := read()
	tour()
	if n := read() - before; n > rows/10 {
		t.Errorf("%d rows were read", n)
	}
}
