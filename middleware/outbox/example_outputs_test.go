package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

type OrderPlaced struct{ SKU string }

type StockReserved struct{ SKU string }

// A handler reserves stock, says so on the event bus, and returns a message for the router.
// Both are published after its transaction, once, though the order comes twice.
func ExamplePublisher() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "millpond")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(dir, "shop.db"))
	must(err)
	defer func() { _ = store.Close() }()
	must(store.Validate(ctx))
	_, err = store.DB().ExecContext(ctx, "CREATE TABLE reserved (sku TEXT PRIMARY KEY) STRICT")
	must(err)
	broker, err := memory.New(memory.Config{})
	must(err)
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	must(err)
	orders, said := receiver(broker, "stock"), receiver(broker, "listener")

	relay, err := outbox.New(store, outbox.Config{Publishers: map[string]message.Publisher{"events": publisher}})
	must(err)
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "stock", Outputs: &middleware.Outputs{Relay: relay}})
	must(err)
	events := outbox.Publisher("events") // the name that the relay knows
	bus, err := cqrs.NewEventBusWithConfig(events, cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	must(err)

	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	must(err)
	router.AddMiddleware(inbox.Middleware)
	router.AddHandler("reserve", "orders", orders, "shipments", events, func(msg *message.Message) ([]*message.Message, error) {
		tx, ok := sqlite.TxFromContext(msg.Context())
		if !ok {
			return nil, stores.ErrNoTx
		}
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO reserved (sku) VALUES (?)", string(msg.Payload)); err != nil {
			return nil, err
		}
		if err := bus.Publish(msg.Context(), StockReserved{SKU: string(msg.Payload)}); err != nil {
			return nil, err
		}
		return []*message.Message{message.NewMessage("", msg.Payload)}, nil
	})
	shipments, err := said.Subscribe(ctx, "shipments")
	must(err)
	reserved, err := said.Subscribe(ctx, "events")
	must(err)
	relayed := make(chan error, 1)
	go func() { relayed <- relay.Run(ctx) }()
	go func() { _ = router.Run(ctx) }()
	<-router.Running()

	order := message.NewMessage("order-1", []byte("chair"))
	must(publisher.Publish("orders", order.Copy(), order.Copy()))
	for _, topic := range []<-chan *message.Message{reserved, shipments} {
		msg := <-topic
		fmt.Println(string(msg.Payload), "because of", msg.Metadata.Get(middleware.MetadataCausationID))
		msg.Ack()
	}
	stop()
	must(<-relayed)
	must(router.Close())
	// Output:
	// {"SKU":"chair"} because of order-1
	// chair because of order-1
}

func receiver(broker brokers.Broker, group string) message.Subscriber {
	s, err := broker.Subscriber(brokers.SubscriberConfig{Group: group})
	must(err)
	return s
}
