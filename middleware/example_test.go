package middleware_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// doneHook receives how each delivery ended.
type doneHook chan middleware.Result

func (h doneHook) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) { h <- d.Result }

// One message is delivered three times; its effect happens once.
func ExampleInbox() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir, err := os.MkdirTemp("", "millpond")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()

	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	check(err)
	defer func() { _ = store.Close() }()
	_, err = store.DB().ExecContext(ctx, "CREATE TABLE stock (sku TEXT PRIMARY KEY, quantity INTEGER) STRICT")
	check(err)
	_, err = store.DB().ExecContext(ctx, "INSERT INTO stock VALUES ('chair', 10)")
	check(err)

	done := make(doneHook)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop", Hooks: []middleware.Hook{done}})
	check(err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	check(err)
	router.AddMiddleware(inbox.Middleware)

	broker, err := memory.New(memory.Config{})
	check(err)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "shop"})
	check(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	check(err)
	router.AddConsumerHandler("stock", "orders", subscriber,
		sqlite.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			_, err := tx.ExecContext(ctx, "UPDATE stock SET quantity = quantity - 1 WHERE sku = ?", string(msg.Payload))
			return err
		}))
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	for range 3 {
		check(publisher.Publish("orders", message.NewMessage("order-1", []byte("chair"))))
		fmt.Println(<-done)
	}
	check(router.Close())
	var quantity int
	err = store.DB().QueryRowContext(ctx, "SELECT quantity FROM stock").Scan(&quantity)
	check(err)
	fmt.Println("chairs left:", quantity)
	// Output:
	// completed
	// duplicate
	// duplicate
	// chairs left: 9
}

func exampleBroker() (message.Subscriber, message.Publisher) {
	broker, err := memory.New(memory.Config{})
	check(err)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "shop"})
	check(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	check(err)
	return subscriber, publisher
}

// The order of middlewares matters: what observes or recovers goes outside the inbox, that
// is before it. Retry and PoisonQueue are left out: the inbox does what they do.
func ExampleInbox_Middleware_order() {
	var (
		store   middleware.Store
		router  *message.Router
		letters message.Publisher
		tracing message.HandlerMiddleware
	)
	configure := func() error {
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
			Service:     "shop",
			Retry:       middleware.RetryPolicy{MaxAttempts: 4},                                // in place of Retry
			DeadLetters: middleware.DeadLetterConfig{Publisher: letters, Topic: "orders.dead"}, // in place of PoisonQueue
		})
		if err != nil {
			return err
		}
		router.AddMiddleware(tracing, watermillmiddleware.Recoverer, inbox.Middleware)
		return nil
	}
	_ = configure
}

// A handler is tested with an inbox and without a router.
func ExampleInbox_Middleware_test() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "millpond")
	check(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	check(err)
	defer func() { _ = store.Close() }()
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop", Handler: "stock"})
	check(err)
	handler := sqlite.Handler(func(_ context.Context, _ *sql.Tx, msg *message.Message) error {
		fmt.Println("ran for", msg.UUID)
		return nil
	})

	wrapped := inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) })
	for range 2 { // two deliveries, one effect
		_, err := wrapped(message.NewMessage("order-1", []byte("chair")))
		check(err)
	}
	// Output:
	// ran for order-1
}

// A middleware that changes messages stands behind Arrival, on the router and in the
// worker: each attempt then begins with what arrived.
func ExampleArrival() {
	var (
		inbox   *middleware.Inbox
		router  *message.Router
		decrypt message.HandlerMiddleware
	)
	configure := func() (*middleware.RetryWorker, error) {
		around := []message.HandlerMiddleware{middleware.Arrival, decrypt}
		router.AddMiddleware(around...)
		router.AddMiddleware(inbox.Middleware)
		// The handlers are added here.
		worker, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers(), Middlewares: around})
		return worker, err
	}
	_ = configure
}

// Messages of producers that know nothing of Watermill have no UUID: say where their
// id is.
func ExampleInboxConfig_keys() {
	config := middleware.InboxConfig{
		Service: "billing",
		Keys:    keys.First(keys.Payload("event", "id")).Scoped(keys.Tenant("tenant")),
	}
	fmt.Println(config.Keys)
	// Output: payload event id per tenant in tenant
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
