package postgres_test

import (
	"context"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

func TestLeaseCosts(t *testing.T) {
	t.Parallel()
	s, proxy := throughProxy(t, testenv.VolatilePostgres(t).NewDatabase(t))
	const ttl = 600 * time.Millisecond
	var effect time.Duration
	in, err := middleware.NewInbox(s, middleware.InboxConfig{
		Service: pgtest.Stock.Service, Handler: pgtest.Stock.Handler, CacheSize: -1, Logger: slog.New(slog.DiscardHandler),
		LeaseByHandler: map[string]middleware.LeaseConfig{pgtest.Stock.Handler: {TTL: ttl}},
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := in.Middleware(func(m *message.Message) ([]*message.Message, error) {
		if effect > 0 {
			<-time.After(effect)
		}
		return nil, middleware.OnComplete(m.Context(), func(ctx context.Context) error {
			tx, _ := postgres.TxFromContext(ctx)
			_, err := tx.Exec(ctx, insertEffect, uuid.NewString())
			return err
		})
	})
	deliver := func(id string) {
		m := message.NewMessage(id, []byte("payload"))
		m.SetContext(t.Context())
		if _, err := handler(m); err != nil {
			t.Fatal(err)
		}
	}
	// The start and each renewal are single statements, which commit by themselves: the proxy
	// counts the COMMIT of the completion, and the server all. A look, which is all that a
	// duplicate costs, ends a transaction for the server that has written nothing.
	ended := func(f func()) int64 {
		least := int64(math.MaxInt64)
		for range 3 { // a vacuum may come between
			before := transactions(t, s)
			f()
			least = min(least, transactions(t, s)-before)
		}
		return least
	}
	if first := pgtest.WarmedUp(t, proxy, func() { deliver(uuid.NewString()) }); first.RoundTrips != 4+1 || first.Commits != 1 {
		t.Errorf("a first delivery costs %+v, want 4 trips, that of the write, and one COMMIT", first)
	}
	if again := pgtest.WarmedUp(t, proxy, func() { deliver("seen") }); again.RoundTrips != 1 || again.Commits != 0 {
		t.Errorf("a duplicate costs %+v, want one trip and no commit", again)
	}
	look, lease := ended(func() { deliver("seen") }), ended(func() { deliver(uuid.NewString()) })
	if lease-look != 2 {
		t.Errorf("the server has ended %d transactions for a first delivery, and %d for a duplicate: want 2 more, the commits", lease, look)
	}
	effect = ttl/3 + ttl/6 // one renewal
	if renewed := pgtest.WarmedUp(t, proxy, func() { deliver(uuid.NewString()) }); renewed.RoundTrips != 5+1 || renewed.Commits != 1 {
		t.Errorf("with one renewal it costs %+v, want a trip more", renewed)
	}
}

// transactions counts what the server has committed in the store's database, of which the
// store has one connection.
func transactions(t *testing.T, s *postgres.Store) (committed int64) {
	t.Helper()
	for _, query := range []string{
		"SELECT 0 FROM pg_stat_force_next_flush()",
		"SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()",
	} {
		if err := s.Pool().QueryRow(t.Context(), query).Scan(&committed); err != nil {
			t.Fatal(err)
		}
	}
	return committed
}
