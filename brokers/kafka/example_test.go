package kafka_test

import (
	"context"
	"log"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
)

func ExampleNew() {
	ctx := context.Background()
	broker, err := kafka.New(ctx, kafka.Config{
		Brokers: []string{"kafka-1:9092", "kafka-2:9092"},
		Consume: kafka.Consume{InFlightPerPartition: 4, Order: kafka.OrderKey},
		Publish: kafka.Publish{KeyMetadata: "customer"},
	})
	if err != nil {
		log.Fatal(err)
	}
	subscriber, err := broker.Subscriber(brokers.SubscriberConfig{Group: "billing", InFlight: 32})
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
