package middleware_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// openShop opens a store with a stock of ten chairs.
func openShop(ctx context.Context) (store *sqlite.Store, end func()) {
	dir, err := os.MkdirTemp("", "millpond")
	check(err)
	store, err = sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	check(err)
	_, err = store.DB().ExecContext(ctx, `CREATE TABLE stock (sku TEXT PRIMARY KEY, quantity INTEGER) STRICT;
		INSERT INTO stock VALUES ('chair', 10);
		CREATE TABLE processed_messages (id TEXT PRIMARY KEY) STRICT;
		INSERT INTO processed_messages VALUES ('order-1')`)
	check(err)
	return store, func() { _, _ = store.Close(), os.RemoveAll(dir) }
}

func deduct(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	_, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1 WHERE sku = ?", string(msg.Payload))
	return err
}

func chairs(ctx context.Context, store *sqlite.Store) (n int) {
	check(store.DB().QueryRowContext(ctx, "SELECT quantity FROM stock WHERE sku = 'chair'").Scan(&n))
	return n
}

// A message that the old table knows does not run again, and is completed.
func ExampleInbox_Middleware_processedMessages() {
	ctx := context.Background()
	store, end := openShop(ctx)
	defer end()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop", Handler: "stock"})
	check(err)

	handler := sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		var processed bool
		err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM processed_messages WHERE id = ?)", msg.UUID).Scan(&processed)
		if err != nil || processed {
			return err // nil: the old way has handled it
		}
		return deduct(ctx, tx, msg)
	})

	wrapped := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
	for _, id := range []string{"order-1", "order-2", "order-2"} { // the first is in the old table
		_, err := wrapped(message.NewMessage(id, []byte("chair")))
		check(err)
	}
	fmt.Println("chairs left:", chairs(ctx, store))
	// Output:
	// chairs left: 9
}

// What told messages apart for the Deduplicator tells them apart for the inbox.
func ExampleInboxConfig_deduplicator() {
	ctx := context.Background()
	store, end := openShop(ctx)
	defer end()

	hash := watermillmiddleware.NewMessageHasherSHA256(math.MaxInt64) // the Deduplicator's KeyFactory
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "shop",
		Handler: "stock",
		Keys: keys.First(keys.Func("hash", func(msg *message.Message) string {
			id, _ := hash(msg) // without an id it goes to quarantine
			return id
		})),
	})
	check(err)

	handler := sqlite.Handler(deduct)
	wrapped := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
	for _, id := range []string{"one", "two"} { // other UUIDs, the same content
		_, err := wrapped(message.NewMessage(id, []byte("chair")))
		check(err)
	}
	fmt.Println("chairs left:", chairs(ctx, store))
	// Output:
	// chairs left: 9
}

// The function of a handler, without an inbox: in a transaction that is rolled back.
func ExampleInbox_Middleware_testFunction() {
	ctx := context.Background()
	store, end := openShop(ctx)
	defer end()

	tx, err := store.DB().BeginTx(ctx, nil)
	check(err)
	check(deduct(ctx, tx, message.NewMessage("order-1", []byte("chair"))))
	var left int
	check(tx.QueryRowContext(ctx, "SELECT quantity FROM stock WHERE sku = 'chair'").Scan(&left))
	check(tx.Rollback())
	fmt.Println("chairs left:", left, "and after the test:", chairs(ctx, store))
	// Output:
	// chairs left: 9 and after the test: 10
}

// The effects of an attempt that fails are gone, and the redelivery makes the next one.
func ExampleInbox_Middleware_testFailure() {
	ctx := context.Background()
	store, end := openShop(ctx)
	defer end()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "shop",
		Handler: "stock",
		Retry: middleware.RetryPolicy{ // so that no retry worker is needed
			Placement: stores.PlacementRedelivered,
			Backoff:   middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond},
		},
	})
	check(err)

	fail := errors.New("the card service is away")
	wrapped := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			return errors.Join(deduct(ctx, tx, msg), fail)
		})(msg)
	})
	_, err = wrapped(message.NewMessage("order-1", []byte("chair")))
	fmt.Println("failed:", errors.Is(err, fail), "chairs left:", chairs(ctx, store))

	fail = nil
	_, err = wrapped(message.NewMessage("order-1", []byte("chair")))
	check(err)
	fmt.Println("chairs left:", chairs(ctx, store))
	// Output:
	// failed: true chairs left: 10
	// chairs left: 9
}
