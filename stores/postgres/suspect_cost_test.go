package postgres_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// What an attempt costs that is counted before it begins: the first 256 of a consumer after
// a start are, where the subscriber does not say which may be redeliveries.
const suspects = 256

// deliverer calls an inbox as a router does, each time with a new message.
func deliverer(t *testing.T, s *postgres.Store) func() {
	t.Helper()
	inbox, err := middleware.NewInbox(s, middleware.InboxConfig{Service: "billing", Handler: "mark-paid"})
	if err != nil {
		t.Fatal(err)
	}
	handle := postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		_, err := tx.Exec(ctx, insertEffect, msg.UUID)
		return err
	})
	deliver := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	return func() {
		if _, err := deliver(message.NewMessage(uuid.NewString(), nil)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFirstDeliveriesAfterAStartCostTwoTripsMore(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	deliver := deliverer(t, s)
	alone := pgtest.WarmedUp(t, proxy, func() { withoutInbox(t, s) })
	first := pgtest.WarmedUp(t, proxy, deliver)
	for range suspects {
		deliver()
	}
	later := pgtest.WarmedUp(t, proxy, deliver)
	if first.RoundTrips != alone.RoundTrips+2 || later.RoundTrips != alone.RoundTrips {
		t.Errorf("trips: %d alone, %d for one of the first %d, %d later", alone.RoundTrips, first.RoundTrips, suspects, later.RoundTrips)
	}
}

func TestFirstDeliveriesAfterAStartWriteTwice(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, quietServer(t), "pool_max_conns", "1"))
	deliver := deliverer(t, s)
	measure := func(messages int64, f func()) (log int64, transactions float64) {
		f()
		logBefore, transactionsBefore := written(t, s)
		for range messages {
			f()
		}
		logAfter, transactionsAfter := written(t, s)
		return (logAfter - logBefore) / messages, float64(transactionsAfter-transactionsBefore) / float64(messages)
	}
	alone, _ := measure(200, func() { withoutInbox(t, s) })
	first, transactions := measure(suspects-1, deliver)
	later, transactionsLater := measure(200, deliver)
	t.Logf("WAL a message: %d B alone, %d B for the first %d after a start, %d B later", alone, first, suspects, later)
	if transactions != 2 || transactionsLater != 1 {
		t.Errorf("%.2f transactions for each of the first, %.2f later, want 2 and 1", transactions, transactionsLater)
	}
	if first-alone > 1200 || later-alone > 400 {
		t.Errorf("the inbox adds %d B at first and %d B later, at most 1200 and 400 are allowed", first-alone, later-alone)
	}
}

// written returns how many bytes of log there are, and how many transactions wrote them.
func written(t *testing.T, s *postgres.Store) (log, transactions int64) {
	t.Helper()
	err := s.Pool().QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint,
pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&log, &transactions)
	if err != nil {
		t.Fatal(err)
	}
	return log, transactions
}
