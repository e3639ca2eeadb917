package sqs_test

import (
	"context"
	"log"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
)

func ExampleNew() {
	ctx := context.Background()
	broker, err := sqs.New(ctx, sqs.Config{
		Region:  "eu-central-1",
		Queues:  []string{"payments"},
		Consume: sqs.Consume{Visibility: 5 * time.Minute},
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
