package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// suspects is how many first deliveries are measured after a start.
const suspects = 256

// deliverer calls an inbox as a router does.
func deliverer(t *testing.T, s *postgres.Store, c middleware.InboxConfig) (inbox *middleware.Inbox, deliver func(*message.Message)) {
	t.Helper()
	c.Service, c.Handler = "billing", "mark-paid"
	inbox, err := middleware.NewInbox(s, c)
	if err != nil {
		t.Fatal(err)
	}
	handle := postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		_, err := tx.Exec(ctx, insertEffect, msg.UUID)
		return err
	})
	around := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	return inbox, func(msg *message.Message) {
		if _, err := around(msg); err != nil {
			t.Fatal(err)
		}
	}
}

// afterAnEnd starts a process on a subscriber that tells nothing of redeliveries, after one that
// has ended in order, or died.
func afterAnEnd(t *testing.T, s *postgres.Store, died bool) (again func()) {
	t.Helper()
	before, deliver := deliverer(t, s, middleware.InboxConfig{})
	again = func() { deliver(message.NewMessage(uuid.NewString(), nil)) }
	again()
	if !died {
		if err := before.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, deliver = deliverer(t, s, middleware.InboxConfig{})
	again()
	return again
}

func TestFirstDeliveriesAfterACleanEndCostNothingMore(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		died  bool
		trips int64
	}{"clean": {false, 0}, "died": {true, 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
			alone := pgtest.WarmedUp(t, proxy, func() { withoutInbox(t, s) })
			first := pgtest.WarmedUp(t, proxy, afterAnEnd(t, s, test.died))
			if more := first.RoundTrips - alone.RoundTrips; int64(more) != test.trips {
				t.Errorf("a first delivery takes %d trips more than the handler alone, want %d", more, test.trips)
			}
		})
	}
}

func TestFirstDeliveriesAfterACleanEndWriteNothingMore(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, quietServer(t), "pool_max_conns", "1"))
	measure := func(f func()) (log int64, transactions float64) {
		f()
		started := time.Now()
		logBefore, transactionsBefore := written(t, s)
		for range suspects {
			f()
		}
		logAfter, transactionsAfter := written(t, s)
		beside := int64(time.Since(started)/(5*time.Second)) + 1 // that this process still lives
		return (logAfter - logBefore - 400*beside) / suspects, float64(transactionsAfter-transactionsBefore-beside) / suspects
	}
	alone, _ := measure(func() { withoutInbox(t, s) })
	clean, transactions := measure(afterAnEnd(t, s, false))
	died, transactionsDied := measure(afterAnEnd(t, s, true))
	t.Logf("WAL a message: %d B alone, %d B after a clean end, %d B after a death", alone, clean, died)
	if transactions > 1 || transactionsDied > 2 {
		t.Errorf("%.2f transactions for each message after a clean end, %.2f after a death, want 1 and 2", transactions, transactionsDied)
	}
	if clean-alone > 400 || died-alone > 1200 {
		t.Errorf("the inbox adds %d B after a clean end and %d B after a death, at most 400 and 1200 are allowed", clean-alone, died-alone)
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

// While most messages are duplicates, each of them takes one round trip, and a new message takes the
// trip of the look more.
func TestDuplicateCostsOneTripWhileMostAreDuplicates(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	_, deliver := deliverer(t, s, middleware.InboxConfig{CacheSize: -1})
	cost := func(id string) (trips, commits int) {
		before := proxy.Stats()
		msg := message.NewMessage(id, nil)
		msg.SetContext(brokers.WithDelivery(t.Context(), msg, brokers.Delivery{Count: 1}))
		deliver(msg)
		c := proxy.Stats().Since(before)
		return c.RoundTrips, c.Commits
	}
	want := func(id string, trips, commits int) {
		t.Helper()
		if got, committed := cost(id); got != trips || committed != commits {
			t.Errorf("%s: %d trips and %d commits, want %d and %d", id, got, committed, trips, commits)
		}
	}
	known := uuid.NewString()
	for range 3 { // what is prepared once
		cost(known)
		cost(uuid.NewString())
	}
	want(known, 2, 0)
	for range 20 {
		cost(known)
	}
	for range 8 {
		want(known, 1, 0)
	}
	want(uuid.NewString(), 4, 1)
	want(known, 1, 0)
	for range 4 {
		cost(uuid.NewString())
	}
	want(uuid.NewString(), 3, 1)
	want(known, 2, 0)
}
