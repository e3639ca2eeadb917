// One order is delivered three times and deducted once. A program to paste into a module of
// your own: docs/tutorials/five-minutes.md goes through it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/sqlite"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	// The database of your handlers. On SQLite, Open also creates millpond's tables.
	store, err := sqlite.Open(ctx, "sqlite://shop.db")
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if err := createStock(ctx, store.DB()); err != nil {
		return err
	}

	// A Watermill router and a broker, as you have them. This broker is in the process.
	logger := watermill.NopLogger{}
	broker := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, logger)
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return err
	}

	// The inbox: one middleware. The handler writes in the transaction that claims the message.
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop"})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("stock", "orders", broker, sqlite.Handler(deduct))

	// The worker that runs failed messages again.
	retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
	if err != nil {
		return err
	}

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { defer stop(); return retries.Run(ctx) })
	group.Go(func() error { defer stop(); return router.Run(ctx) })
	group.Go(func() error { defer stop(); return deliverThreeTimes(ctx, router, broker, store.DB()) })
	// Close says that this process has not died: its messages are no suspects for the next one.
	return errors.Join(group.Wait(), inbox.Close(context.WithoutCancel(ctx)))
}

// deduct is not idempotent: it must not run twice for one order.
func deduct(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	fmt.Println("handler runs for", msg.UUID)
	_, err := tx.ExecContext(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = ?", string(msg.Payload))
	return err
}

func deliverThreeTimes(ctx context.Context, router *message.Router, publisher message.Publisher, db *sql.DB) error {
	select {
	case <-router.Running():
	case <-ctx.Done():
		return ctx.Err()
	}
	for range 3 {
		if err := publisher.Publish("orders", message.NewMessage("order-1", []byte("cup"))); err != nil {
			return err
		}
	}
	var pieces int
	if err := db.QueryRowContext(ctx, "SELECT pieces FROM stock WHERE item = 'cup'").Scan(&pieces); err != nil {
		return err
	}
	fmt.Println("cups left:", pieces)
	return nil
}

func createStock(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, pieces INTEGER) STRICT;
		INSERT OR IGNORE INTO stock VALUES ('cup', 10)`)
	return err
}
