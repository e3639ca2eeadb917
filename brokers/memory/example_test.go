package memory_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

func Example() {
	broker, err := memory.New(memory.Config{Capacity: 10_000})
	if err != nil {
		panic(err)
	}
	defer broker.Close()

	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		panic(err)
	}
	if err := publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("two pencils"))); err != nil {
		panic(err)
	}

	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "stock"})
	if err != nil {
		panic(err)
	}
	defer subscriber.Close()
	messages, err := subscriber.Subscribe(context.Background(), "orders")
	if err != nil {
		panic(err)
	}

	msg := <-messages
	msg.Nack() // it comes again

	msg = <-messages
	delivery, _ := brokers.DeliveryOf(msg)
	fmt.Printf("%s, delivery %d of %s\n", msg.Payload, delivery.Count, delivery.Coordinates)
	msg.Ack()

	// Output: two pencils, delivery 2 of orders/1
}
