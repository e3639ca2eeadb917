package amqp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	theirs "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// BenchmarkConsume is a message delivered, handled and acked, by handlers that take some
// time each, against watermill-amqp, which has one in flight.
func BenchmarkConsume(b *testing.B) {
	for _, version := range rabbitmq.Versions() {
		for _, takes := range []time.Duration{0, 2 * time.Millisecond} {
			b.Run(fmt.Sprintf("%s/%s/32 in flight", version, takes), func(b *testing.B) {
				address := testenv.RabbitMQ(b, version)
				broker := newBroker(b, parse(b, address))
				s := subscriber(b, broker, brokers.SubscriberConfig{Group: "group", InFlight: 32})
				benchConsume(b, broker, s, takes)
			})
			b.Run(fmt.Sprintf("%s/%s/watermill-amqp", version, takes), func(b *testing.B) {
				address := testenv.RabbitMQ(b, version)
				config := theirs.NewDurablePubSubConfig(address, theirs.GenerateQueueNameTopicNameWithSuffix("theirs"))
				config.Queue.Arguments = map[string]any{"x-queue-type": "quorum"}
				config.Consume.Qos.PrefetchCount = 32
				s, err := theirs.NewSubscriber(config, watermill.NopLogger{})
				if err != nil {
					b.Fatal(err)
				}
				benchConsume(b, newBroker(b, parse(b, address)), s, takes)
			})
		}
	}
}

func benchConsume(b *testing.B, broker *amqp.Broker, s message.Subscriber, takes time.Duration) {
	b.Helper()
	topic := "bench-" + uuid.NewString()
	if err := s.(message.SubscribeInitializer).SubscribeInitialize(topic); err != nil {
		b.Fatal(err)
	}
	messages := make([]*message.Message, b.N)
	for i := range messages {
		messages[i] = message.NewMessage(uuid.NewString(), make([]byte, 256))
	}
	if err := publisher(b, broker).Publish(topic, messages...); err != nil {
		b.Fatal(err)
	}
	out, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var handlers sync.WaitGroup
	for range b.N {
		msg := <-out
		handlers.Go(func() {
			if takes > 0 {
				<-time.After(takes)
			}
			msg.Ack()
		})
	}
	handlers.Wait()
	b.StopTimer()
	if err := s.Close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkPublish is a message confirmed by a quorum queue, one at a time and many.
func BenchmarkPublish(b *testing.B) {
	for _, version := range rabbitmq.Versions() {
		for _, batch := range []int{1, 100} {
			b.Run(fmt.Sprintf("%s/%d at a time", version, batch), func(b *testing.B) {
				broker := newBroker(b, parse(b, testenv.RabbitMQ(b, version)))
				topic := "bench-" + uuid.NewString()
				s := subscriber(b, broker, brokers.SubscriberConfig{Group: "group"})
				if err := s.SubscribeInitialize(topic); err != nil {
					b.Fatal(err)
				}
				p := publisher(b, broker)
				payload := make([]byte, 256)
				b.ReportAllocs()
				b.ResetTimer()
				for n := 0; n < b.N; n += batch {
					messages := make([]*message.Message, min(batch, b.N-n))
					for i := range messages {
						messages[i] = message.NewMessage(uuid.NewString(), payload)
					}
					if err := p.Publish(topic, messages...); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
