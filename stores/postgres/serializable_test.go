package postgres_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Where a server's default isolation is serializable, what the store writes by itself may
// fail to serialize. It is written nevertheless: an output that was published stayed to be
// published again.
func TestWhatFailsToSerializeIsWritten(t *testing.T) {
	for name, keep := range map[string]bool{"deleted": false, "kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "default_transaction_isolation", "serializable"))
			err := pgx.BeginFunc(t.Context(), s.Pool(), func(tx pgx.Tx) error {
				return postgres.NewPublisher(tx, s, stores.PublisherConfig{}).Publish("orders", message.NewMessage("1", []byte("1")))
			})
			if err != nil {
				t.Fatal(err)
			}
			var number int64
			other, err := s.Pool().Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = other.Rollback(context.Background()) }()
			if err := other.QueryRow(t.Context(), "UPDATE millpond_outbox SET attempts = 1 RETURNING id").Scan(&number); err != nil {
				t.Fatal(err)
			}
			settled := make(chan error, 1)
			go func() { settled <- s.Settle(t.Context(), stores.Settlement{Published: []int64{number}, Keep: keep}) }()
			testenv.Eventually(t, "Settle waits", func() (waits bool) {
				err := s.Pool().QueryRow(t.Context(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&waits)
				if err != nil {
					t.Fatal(err)
				}
				return waits
			})
			if err := other.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-settled; err != nil {
				t.Fatal(err)
			}
			var left, history int
			if err := s.Pool().QueryRow(t.Context(), "SELECT (SELECT count(*) FROM millpond_outbox), (SELECT count(*) FROM millpond_outbox_history)").Scan(&left, &history); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(left, history == 1) != fmt.Sprint(0, keep) {
				t.Fatalf("%d are left to be published, %d are in the history", left, history)
			}
		})
	}
}
