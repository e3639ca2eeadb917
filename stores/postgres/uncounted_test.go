package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A failure that is not on record is no failure: its message would be run for ever. Here
// is what keeps this store from recording one.

// deliver sends one message through an inbox on s.
func deliver(t *testing.T, s *postgres.Store, c middleware.InboxConfig, d brokers.Delivery, id string, f func(context.Context, pgx.Tx) error) error {
	t.Helper()
	c.Service, c.Handler, c.Logger = pgtest.Stock.Service, pgtest.Stock.Handler, slog.New(slog.DiscardHandler)
	in, err := middleware.NewInbox(s, c)
	if err != nil {
		t.Fatal(err)
	}
	m := message.NewMessage(id, []byte("payload of "+id))
	m.SetContext(brokers.WithDelivery(t.Context(), m, d))
	_, err = in.Middleware(func(m *message.Message) ([]*message.Message, error) {
		return nil, postgres.Handler(func(ctx context.Context, tx pgx.Tx, _ *message.Message) error { return f(ctx, tx) })(m)
	})(m)
	return err
}

// failedOnce fails unless the message was run once, and its failure is on record once.
func failedOnce(t *testing.T, s *postgres.Store, id string, runs int, class stores.Class) {
	t.Helper()
	m, err := s.Find(t.Context(), stores.Key{Consumer: pgtest.Stock, ID: []byte("u:" + id)})
	if err != nil || runs != 1 || m.Attempts != 1 || m.Uncounted != 0 || m.Class != class || m.Placement != stores.PlacementParked {
		t.Errorf("%d runs, %v, recorded as %s/%s, %d+%d attempts, %s", runs, err, m.Status, m.Placement, m.Attempts, m.Uncounted, m.Class)
	}
}

// warm opens all connections of a pool.
func warm(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var all []*pgxpool.Conn
	for range pool.Config().MaxConns {
		c, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.Release()
	}
}

// untilAsleep waits until a statement of the database sleeps.
func untilAsleep(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const asleep = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep')"
	ctx := promptly(t)
	for found := false; !found; {
		if err := pool.QueryRow(ctx, asleep).Scan(&found); err != nil {
			t.Fatal(err)
		}
	}
}

// The server ends a statement whose context has ended only after it was asked to on a
// new connection. As over any network, that takes longer than to record the failure on
// an open one.
func TestTimeoutInAStatementIsRecordedWhereConnectingTakesLong(t *testing.T) {
	t.Parallel()
	url := testenv.VolatilePostgres(t).NewDatabase(t)
	openStore(t, url)
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	var slow atomic.Bool
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if slow.Load() {
			<-time.After(100 * time.Millisecond)
		}
		return dial(ctx, network, address)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	s, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	warm(t, pool)
	slow.Store(true)
	runs := 0
	err = deliver(t, s, middleware.InboxConfig{HandlerTimeout: 200 * time.Millisecond}, brokers.Delivery{Count: 1}, "slow",
		func(ctx context.Context, tx pgx.Tx) error {
			runs++
			_, err := tx.Exec(ctx, "SELECT pg_sleep(20)")
			return err
		})
	if err != nil {
		t.Error(err)
	}
	failedOnce(t, s, "slow", runs, stores.ClassTimeout)
}

// Its connection has to be cut, and what the statement then fails with is our doing and
// not the database's.
func TestHandlerThatLeavesAStatementRunningHasFailed(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var left sync.WaitGroup
	defer left.Wait()
	runs := 0
	err := deliver(t, s, middleware.InboxConfig{}, brokers.Delivery{Count: 1}, "left", func(_ context.Context, tx pgx.Tx) error {
		runs++
		left.Go(func() { _, _ = tx.Exec(context.Background(), "SELECT pg_sleep(1)") })
		untilAsleep(t, s.Pool())
		return errors.New("boom")
	})
	if err != nil {
		t.Error(err)
	}
	failedOnce(t, s, "left", runs, stores.ClassTransient)
}

// Another transaction was slow, which is no fault of the message.
func TestLockTimeoutIsAnInterruption(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	holder, err := s.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	exec(t, holder, "LOCK TABLE effect")
	a, tx := begin(t, s, pgtest.Claim("waits"))
	exec(t, tx, "SET LOCAL lock_timeout = '10ms'")
	if _, err := tx.Exec(t.Context(), insertEffect, "waits"); err == nil {
		t.Error("it has not waited")
	}
	if err := a.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if a.(stores.Interruptible).Interrupted() == nil { //nolint:forcetypeassert // a panic is a failure too
		t.Error("a lock timeout counts as the handler's failure")
	}
}

// A handler that makes its transaction read-only has failed: no other run would write either.
func TestReadOnlyTransactionIsTheHandlersFailure(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	runs := 0
	err := deliver(t, s, middleware.InboxConfig{}, brokers.Delivery{Count: 1}, "read only", func(ctx context.Context, tx pgx.Tx) error {
		runs++
		exec(t, tx, "SET TRANSACTION READ ONLY")
		_, err := tx.Exec(ctx, insertEffect, "read only")
		return err
	})
	if err != nil {
		t.Error(err)
	}
	failedOnce(t, s, "read only", runs, stores.ClassTransient)

	a, tx := begin(t, s, pgtest.Claim("output"))
	exec(t, tx, "SET TRANSACTION READ ONLY")
	if err := a.(stores.Emitter).Emit([]stores.Output{output("")}); err != nil { //nolint:forcetypeassert // a panic is a failure too
		t.Fatal(err)
	}
	if err := a.Commit(t.Context()); !errors.Is(err, stores.ErrNotCommitted) || !strings.Contains(err.Error(), "read-only transaction") {
		t.Error(err)
	}
	if err := a.(stores.Interruptible).Interrupted(); err != nil { //nolint:forcetypeassert // a panic is a failure too
		t.Errorf("its output could not be written, which counts as the database's failure: %v", err)
	}
}

// The program's role may have been granted the tables of an older version only. What it
// can do it must go on doing: other messages meet nothing of it.
func TestMissingRightsToTheFailuresAreNoOutage(t *testing.T) {
	t.Parallel()
	url := testenv.VolatilePostgres(t).NewDatabase(t)
	admin := openStore(t, url)
	const role = "pg_read_all_data" // there is one of that name on each server
	if _, err := admin.Pool().Exec(t.Context(), "GRANT ALL ON millpond_inbox, millpond_consumer, millpond_quarantine, effect TO "+role); err != nil {
		t.Fatal(err)
	}
	s, err := postgres.Open(t.Context(), pgtest.WithParameters(t, url, "role", role))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}); err != nil {
		t.Fatal(err)
	}
	a, tx := begin(t, s, pgtest.Claim("healthy"))
	exec(t, tx, insertEffect, "healthy")
	if err := a.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = s.Record(t.Context(), parked(pgtest.Claim("failed")))
	if err == nil || errors.Is(err, stores.ErrUnavailable) || errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrChanged) {
		t.Errorf("Record without the right to: %v", err)
	}
}

// The index of order keys takes less than brokers do.
func TestOrderKeysOfAnyLength(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	f := parked(pgtest.Claim("longest"))
	f.OrderKey = make([]byte, stores.MaxOrderKeyBytes)
	_, _ = rand.Read(f.OrderKey) // so that it cannot be compressed
	record(t, s, f)

	key := make([]byte, 4000)
	_, _ = rand.Read(key)
	f = parked(pgtest.Claim("too long"))
	f.OrderKey = key
	if _, err := s.Record(t.Context(), f); err == nil || errors.Is(err, stores.ErrUnavailable) {
		t.Errorf("an order key of %d bytes: %v", len(key), err)
	}

	c := middleware.InboxConfig{Retry: middleware.RetryPolicy{OrderKey: middleware.OrderByKey}, Hold: middleware.HoldConfig{Limit: time.Second}}
	healthy := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, insertEffect, "healthy")
		return err
	}
	if err := deliver(t, s, c, brokers.Delivery{Suspect: true, Key: key}, "healthy", healthy); err != nil || effects(t, s.Pool()) != 1 {
		t.Errorf("a suspect message: %v", err)
	}
	runs := 0
	if err := deliver(t, s, c, brokers.Delivery{Count: 1, Key: key}, "failing", func(context.Context, pgx.Tx) error { runs++; return errors.New("boom") }); err != nil {
		t.Error(err)
	}
	failedOnce(t, s, "failing", runs, stores.ClassTransient)
}
