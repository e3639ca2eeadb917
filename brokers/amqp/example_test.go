package amqp_test

import (
	"context"
	"log"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
)

func ExampleNew() {
	ctx := context.Background()
	broker, err := amqp.New(ctx, amqp.Config{
		Addresses: []string{"rabbit-1:5672", "rabbit-2:5672"},
		Topology:  amqp.Topology{DeliveryLimit: 50},
		Consume:   amqp.Consume{RetryDelays: []time.Duration{time.Second, time.Minute}},
	})
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "billing", InFlight: 8})
	if err != nil {
		log.Fatal(err)
	}
	payments, err := subscriber.Subscribe(ctx, "payments")
	if err != nil {
		log.Fatal(err)
	}
	for msg := range payments {
		msg.Ack()
	}
}
