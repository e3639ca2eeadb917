package brokers_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/memory" // for memory:// URLs
)

// The URL decides which broker is used. The program imports the adapter.
func ExampleOpen() {
	ctx := context.Background()
	broker, err := brokers.Open(ctx, "memory://")
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "billing"})
	if err != nil {
		panic(err)
	}
	defer subscriber.Close()
	orders, err := subscriber.Subscribe(ctx, "orders")
	if err != nil {
		panic(err)
	}
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		panic(err)
	}
	if err := publisher.Publish("orders", message.NewMessage("order-1", []byte("two pencils"))); err != nil {
		panic(err)
	}

	msg := <-orders
	delivery, _ := brokers.DeliveryOf(msg)
	fmt.Printf("%s: delivery %d from %s\n", msg.UUID, delivery.Count, delivery.Topic)
	msg.Ack()

	// Output: order-1: delivery 1 from orders
}
