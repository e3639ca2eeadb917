package postgres_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A connection keeps the plans that it made when the tables were small and never analyzed. They
// read few rows of large ones, too.
func TestPlansOfSmallTablesReadFewRowsOfLargeOnes(t *testing.T) {
	t.Parallel()
	const rows = 100_000
	for _, small := range rotation.Some(t, 2, map[string]int{"none": 0, "one": 1, "a page": 100, "some pages": 600, "many pages": 2000}) {
		s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "plan_cache_mode", "force_generic_plan", "pool_max_conns", "1"))
		more := func(first, last int) {
			fillBetween(t, s, first, last)
			exec(t, s.Pool(), fmt.Sprintf(`INSERT INTO millpond_outbox (bytes, bucket, destination, topic, type, codec, message_id, metadata, payload)
SELECT 1, n %% 64, '', '', '', '', int4send(n), '', '' FROM generate_series(%d, %d) n`, first, last))
		}
		more(1, small)
		unclaim, owned := s.BatchStatements()
		look, together := s.LookStatements()
		consumer := consumerNumber(t, s)
		const ids = `ARRAY['\x00000001', '\x00000002', '\x00000003']::bytea[]`
		calls := map[string]string{
			"due(" + consumer + ", 100, '1 minute', 1000000000)":  "due(bigint, bigint, interval, bigint) AS " + s.DueStatement(),
			"take(" + consumer + `, '\x00000001', 1, 0, 1, NULL)`: "take(bigint, bytea, bigint, integer, bigint, bytea) AS " + s.TakeOverStatement(),
			"look(" + consumer + `, '\x00000001')`:                "look(bigint, bytea) AS " + look,
			"together(" + consumer + ", " + ids + ")":             "together(bigint, bytea[]) AS " + together,
			"unclaim(" + consumer + ", " + ids + ")":              "unclaim(bigint, bytea[]) AS " + unclaim,
			"owned(" + consumer + ", " + ids + ", 0)":             "owned(bigint, bytea[], bigint) AS " + owned,
			"settle(ARRAY[1, 2], ARRAY[1, 2], ARRAY[0, 0])":       "settle(bigint[], bigint[], bigint[]) AS " + s.SettleStatement(),
		}
		exec(t, s.Pool(), "SELECT set_config('millpond.turn', 'true', false)") // on the only connection
		for call, statement := range calls {
			exec(t, s.Pool(), "PREPARE "+statement)
			exec(t, s.Pool(), "EXECUTE "+call)
		}
		more(small+1, rows)
		for call := range calls {
			readsFew(t, fmt.Sprintf("%s, planned with %d rows", call, small), executed(t, s, call))
		}
	}
}

// consumerNumber is that of the only consumer, in SQL.
func consumerNumber(t *testing.T, s *postgres.Store) (number string) {
	t.Helper()
	if err := s.Pool().QueryRow(t.Context(), "SELECT id::text FROM millpond_consumer").Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

// readRows are the counts of rows in a plan.
var readRows = regexp.MustCompile(`(?:actual rows=|Rows Removed by [A-Za-z ]+: )(\d+)`)

// readsFew fails if a part of a plan has read many rows.
func readsFew(t *testing.T, what, plan string) {
	t.Helper()
	const few = 200
	for _, found := range readRows.FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(found[1]); err != nil || n > few {
			t.Errorf("%s: %s:\n%s", what, found[0], plan)
		}
	}
}

// executed executes a prepared statement, and returns its plan with the rows that it has read.
func executed(t *testing.T, s *postgres.Store, call string) (plan string) {
	t.Helper()
	lines, err := s.Pool().Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF) EXECUTE "+call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(lines, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "\n")
}
