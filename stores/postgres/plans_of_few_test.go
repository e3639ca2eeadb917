package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
)

// A plan that was made when the inbox had few rows, and was analyzed, may read it as a whole, but not
// once for each message of a batch.
func TestPlansOfFewAnalyzedRowsReadTheInboxOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "plan_cache_mode", "force_generic_plan", "pool_max_conns", "1"))
	fillBetween(t, s, 1, 60)
	exec(t, s.Pool(), "ANALYZE millpond_inbox")
	unclaim, owned := s.BatchStatements()
	given := consumerNumber(t, s) + `, ARRAY['\x00000001', '\x00000002', '\x00000003']::bytea[]`
	calls := map[string]string{
		"unclaim(" + given + ")":  "unclaim(bigint, bytea[]) AS " + unclaim,
		"owned(" + given + ", 0)": "owned(bigint, bytea[], bigint) AS " + owned,
	}
	for call, statement := range calls {
		exec(t, s.Pool(), "PREPARE "+statement)
		exec(t, s.Pool(), "EXECUTE "+call)
	}
	fillBetween(t, s, 61, 5000)
	for call := range calls {
		plan := executed(t, s, call)
		for line := range strings.Lines(plan) {
			if strings.Contains(line, "Seq Scan on millpond_inbox") && !strings.Contains(line, "loops=1)") && !strings.Contains(line, "never executed") {
				t.Errorf("%s:\n%s", call, plan)
			}
		}
	}
}

// Published outputs are locked in the order of their numbers, as operators lock them: in another
// order the two could deadlock.
func TestSettleLocksInOrder(t *testing.T) {
	for name, keep := range map[string]bool{"deleted": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, testenv.VolatilePostgres(t).NewDatabase(t))
			var q stores.Settlement
			rows, err := s.Pool().Query(t.Context(), `INSERT INTO millpond_outbox (bytes, bucket, destination, topic, type, codec, message_id, metadata, payload)
SELECT 1, 1, '', '', '', '', int4send(n), '', '' FROM generate_series(1, 50) n RETURNING id, created_at`)
			if err != nil {
				t.Fatal(err)
			}
			var number int64
			var at time.Time
			if _, err := pgx.ForEachRow(rows, []any{&number, &at}, func() error {
				q.Published, q.CreatedAt = append(q.Published, number), append(q.CreatedAt, at)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			q.Keep = keep
			operator, err := s.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = operator.Rollback(context.Background()) }()
			exec(t, operator, "SELECT FROM millpond_outbox WHERE id = $1 FOR UPDATE", q.Published[0])
			settled := make(chan error, 1)
			go func() { settled <- s.Settle(t.Context(), q) }()
			testenv.Eventually(t, "Settle waits", func() (waits bool) {
				if err := s.Pool().QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waits); err != nil {
					t.Fatal(err)
				}
				return waits
			})
			_, lockErr := operator.Exec(t.Context(), "SELECT FROM millpond_outbox FOR UPDATE NOWAIT")
			if err := operator.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if lockErr != nil {
				t.Errorf("Settle has locked outputs behind one that it waits for: %v", lockErr)
			}
			if err := <-settled; err != nil {
				t.Fatal(err)
			}
			var left int
			if err := s.Pool().QueryRow(t.Context(), "SELECT count(*) FROM millpond_outbox").Scan(&left); err != nil || left != 0 {
				t.Errorf("%d are left: %v", left, err)
			}
		})
	}
}
