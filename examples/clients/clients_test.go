package clients_test

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/examples/clients"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

//go:embed queries/schema.sql
var schema string

const (
	deposits = 30
	copies   = 3 // of each
	amount   = 7
)

// TestClients delivers every message several times. Each handler fails once with every
// second message, after it has written. In the end each deposit is there once, and the
// balance is their sum.
func TestClients(t *testing.T) {
	for name, newHandler := range map[string]func(*sql.DB) (message.NoPublishHandlerFunc, error){
		"bun":  func(db *sql.DB) (message.NoPublishHandlerFunc, error) { return clients.Bun(db), nil },
		"gorm": clients.Gorm,
		"sqlx": func(db *sql.DB) (message.NoPublishHandlerFunc, error) { return clients.Sqlx(db), nil },
		"ent":  func(*sql.DB) (message.NoPublishHandlerFunc, error) { return clients.Ent(), nil },
		"sqlc": func(*sql.DB) (message.NoPublishHandlerFunc, error) { return clients.Sqlc(), nil },
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t)
			handler, err := newHandler(db)
			if err != nil {
				t.Fatal(err)
			}
			failing := &failing{handler: handler}
			acked := deliver(t, db, failing.handle)
			testenv.Eventually(t, "every copy is acked", func() bool { return acked.Load() == deposits*copies })

			if n := failing.failures; n != deposits/2 {
				t.Errorf("the handler has failed %d times", n)
			}
			expect(t, db, "SELECT count(*) FROM deposit", deposits)
			expect(t, db, "SELECT count(DISTINCT id) FROM deposit", deposits)
			expect(t, db, "SELECT sum(balance) FROM account", deposits*amount)
		})
	}
}

func newDatabase(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sqldb.OpenDB(testenv.Postgres(t).NewDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{schema, "INSERT INTO account VALUES ('one', 0), ('two', 0)"} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// deliver runs a service with the handler on a broker that has all messages. It returns
// the number of deliveries that were acked so far.
func deliver(t *testing.T, db *sql.DB, handler message.NoPublishHandlerFunc) *atomic.Int64 {
	t.Helper()
	store, err := sqldb.New(db, sqldb.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "bank",
		Retry: middleware.RetryPolicy{
			Placement: stores.PlacementRedelivered, // by the broker, so that no retry worker is needed
			Backoff:   middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	broker, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, broker)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "bank", InFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	var acked atomic.Int64
	router.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			if err == nil {
				acked.Add(1)
			}
			return produced, err
		}
	}, inbox.Middleware)
	router.AddConsumerHandler("deposits", "deposits", subscriber, handler)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, broker.Close()); err != nil {
			t.Error(err)
		}
	})
	return &acked
}

func publish(t *testing.T, broker *memory.Broker) {
	t.Helper()
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	accounts := []string{"one", "two"}
	for range copies {
		for i := range deposits {
			id := fmt.Sprintf("deposit-%d", i)
			payload, err := json.Marshal(clients.Deposit{ID: id, Account: accounts[i%2], Amount: amount})
			if err != nil {
				t.Fatal(err)
			}
			if err := publisher.Publish("deposits", message.NewMessage(id, payload)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// failing lets a handler fail once with every second message, after its work.
type failing struct {
	handler message.NoPublishHandlerFunc

	mu       sync.Mutex
	failures int
	seen     map[string]bool
}

func (f *failing) handle(msg *message.Message) error {
	if err := f.handler(msg); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var n int
	if _, err := fmt.Sscanf(msg.UUID, "deposit-%d", &n); err != nil {
		return err
	}
	if n%2 == 1 || f.seen[msg.UUID] {
		return nil
	}
	if f.seen == nil {
		f.seen = make(map[string]bool)
	}
	f.seen[msg.UUID] = true
	f.failures++
	return errors.New("the handler fails after its work")
}

func expect(t *testing.T, db *sql.DB, query string, want int64) {
	t.Helper()
	var got int64
	if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("%s: %d, want %d", query, got, want)
	}
}
