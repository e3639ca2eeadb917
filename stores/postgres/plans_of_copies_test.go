package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// A replay looks up the source of each copy. It does not read the history for it, which it would do
// again for each of its batches.
func TestReplayReadsFewRowsOfTheHistory(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	exec(t, s.Pool(), `INSERT INTO millpond_outbox_history (id, created_at, published_at, bytes, bucket, attempts, destination, topic, type, codec, message_id, copy_of)
SELECT n, now(), clock_timestamp(), 0, 1, 0, '', '', '', '', int4send(n), CASE WHEN n % 2 = 0 THEN n - 1 END FROM generate_series(1, $1::integer) n`, rows)
	exec(t, s.Pool(), "ANALYZE millpond_outbox_history")
	since := time.Now().Add(-time.Hour)
	done, err := s.ChangeOutputs(t.Context(), stores.OutputChange{
		Verb: stores.VerbReplayOutput, Filter: stores.OutputFilter{State: stores.OutputPublished, Since: since, WithoutCopies: true}, After: rows / 2, UpTo: rows, Limit: 50,
	})
	if err != nil || done.Changed != 50 {
		t.Fatalf("%+v, %v", done, err)
	}
	var name string
	if err := s.Pool().QueryRow(t.Context(), "SELECT name FROM pg_prepared_statements WHERE statement LIKE '%copy_of IS NULL%'").Scan(&name); err != nil {
		t.Fatal(err)
	}
	at := since.Format(time.RFC3339)
	readsFew(t, "replay", executed(t, s, fmt.Sprintf("%q('%s', '%s', %d, %d, 50)", name, at, at, rows/2, rows)))
}
