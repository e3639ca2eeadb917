package nats_test

import (
	"context"
	"log"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/nats"
)

func ExampleNew() {
	ctx := context.Background()
	broker, err := nats.New(ctx, nats.Config{
		Servers:       []string{"nats-1:4222", "nats-2:4222"},
		CreateStreams: true,
		Replicas:      3,
		Consume:       nats.Consume{AckWait: time.Minute},
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
