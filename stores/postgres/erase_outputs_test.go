package postgres_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A relay that gives up an output which an operator is erasing does not bring it back.
func TestErasedOutputDoesNotComeBackAmongTheFailed(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	if err := pgx.BeginFunc(t.Context(), s.Pool(), func(tx pgx.Tx) error {
		return postgres.NewPublisher(tx, s, stores.PublisherConfig{}).Publish("orders", message.NewMessage("a", nil))
	}); err != nil {
		t.Fatal(err)
	}
	erasing, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = erasing.Rollback(context.WithoutCancel(t.Context())) }()
	var number int64
	if err := erasing.QueryRow(t.Context(), "DELETE FROM millpond_outbox RETURNING id").Scan(&number); err != nil {
		t.Fatal(err)
	}
	settled := make(chan error, 1)
	go func() {
		settled <- s.Settle(t.Context(), stores.Settlement{Refused: []stores.RefusedOutput{{Number: number, Attempts: 1, Error: "no", Failed: true}}})
	}()
	testenv.Eventually(t, "the relay waits", func() bool {
		var waits bool
		err := s.Pool().QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits)
		return err == nil && waits
	})
	if err := erasing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-settled; err != nil {
		t.Fatal(err)
	}
	n, _, err := s.MatchingOutputs(t.Context(), stores.OutputFilter{State: stores.OutputFailed}, 10)
	if err != nil || n != 0 {
		t.Errorf("%d outputs are among the failed, %v", n, err)
	}
}
