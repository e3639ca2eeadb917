package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// What a connection planned while the tables were small is as good when a consumer has many messages,
// completed and failed: no statement of deliveries and retries reads them all.
func TestNothingPlannedOnSmallTablesReadsAllOfLargeOnes(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	for _, small := range rotation.Some(t, 2, map[string]int{"none": 0, "a page": 100, "some pages": 600, "many pages": 2000}) {
		s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "plan_cache_mode", "force_generic_plan", "pool_max_conns", "2"))
		tour := func() { pgtest.Deliveries(t, s, func(stores.Attempt) {}) }
		fillDueIn(t, s, "interval '1 hour'", 1, small)
		tour()
		_, planned := rowsRead(t, s.Pool())
		for table := range strings.FieldsSeq("once failure inbox") { // what the tour has left
			exec(t, s.Pool(), "DELETE FROM millpond_"+table+" WHERE octet_length(message_id) <> 4")
		}
		fillDueIn(t, s, "interval '1 hour'", small+1, rows)
		before, _ := rowsRead(t, s.Pool())
		tour()
		after, now := rowsRead(t, s.Pool())
		if n := after - before; n > rows/10 {
			t.Errorf("planned with %d rows: %d rows were read", small, n)
		}
		if now != planned {
			t.Errorf("the connections are %s now, and those that have planned are %s", now, planned)
		}
	}
}

// rowsRead returns how many rows the connections of a pool have read so far, and which ones they are.
func rowsRead(t *testing.T, pool *pgxpool.Pool) (rows int64, servers string) {
	t.Helper()
	var all []*pgxpool.Conn
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		if _, err := conn.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	const read = `SELECT sum(seq_tup_read) + (SELECT sum(idx_tup_read) FROM pg_stat_user_indexes),
(SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend') FROM pg_stat_user_tables`
	if err := all[0].QueryRow(t.Context(), read).Scan(&rows, &servers); err != nil {
		t.Fatal(err)
	}
	return rows, servers
}
