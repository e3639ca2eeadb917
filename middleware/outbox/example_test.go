package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// A program that has a router, a publisher and a database begins a relay beside them. What it
// writes in its own transactions is published after them, or not at all.
func ExampleRelay() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "millpond")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	must(err)
	defer func() { _ = store.Close() }()
	must(store.Validate(ctx)) // once, when the program starts
	_, err = store.DB().ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY) STRICT")
	must(err)
	broker, err := memory.New(memory.Config{})
	must(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	must(err)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "shipping"})
	must(err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(err)
	shipped := make(chan string)
	router.AddConsumerHandler("ship", "orders", subscriber, func(msg *message.Message) error {
		shipped <- string(msg.Payload)
		return nil
	})

	relay, err := outbox.New(store, outbox.Config{Publishers: map[string]message.Publisher{"": publisher}})
	must(err)
	relayed := make(chan error, 1)
	go func() { relayed <- relay.Run(ctx) }()
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	placeOrder := func(order string) error {
		tx, err := store.DB().BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		orders := sqlite.NewPublisher(tx, store, stores.PublisherConfig{})
		if err := orders.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte(order))); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES (?)", order); err != nil {
			return err
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		relay.Poke() // it would be found soon anyway
		return nil
	}
	must(placeOrder("chair"))
	fmt.Println("shipped:", <-shipped)
	fmt.Println("placed twice:", placeOrder("chair") == nil)
	must(placeOrder("table"))
	fmt.Println("shipped:", <-shipped)

	stop()
	must(<-relayed)
	must(router.Close())
	// Output:
	// shipped: chair
	// placed twice: false
	// shipped: table
}

// A program that puts messages into the envelopes of Watermill's Forwarder goes on: the relay
// takes them out.
func ExampleForwarder() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "millpond")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	must(err)
	defer func() { _ = store.Close() }()
	must(store.Validate(ctx))
	broker, err := memory.New(memory.Config{})
	must(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	must(err)
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "shipping"})
	must(err)
	orders, err := subscriber.Subscribe(ctx, "orders")
	must(err)

	relay, err := outbox.New(store, outbox.Config{Publishers: map[string]message.Publisher{"": outbox.Forwarder{}.Publisher(publisher)}})
	must(err)
	relayed := make(chan error, 1)
	go func() { relayed <- relay.Run(ctx) }()

	tx, err := store.DB().BeginTx(ctx, nil)
	must(err)
	enveloped := forwarder.NewPublisher(sqlite.NewPublisher(tx, store, stores.PublisherConfig{}), forwarder.PublisherConfig{})
	must(enveloped.Publish("orders", message.NewMessage("1", []byte("chair"))))
	must(tx.Commit())
	order := <-orders
	fmt.Println(order.UUID, string(order.Payload))
	order.Ack()

	stop()
	must(<-relayed)
	// Output: 1 chair
}
