package sqs_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

// BenchmarkConsume is under Watermill's router, with 1 KiB messages in a queue that is full
// at the start. An operation is one message.
func BenchmarkConsume(b *testing.B) {
	for _, bench := range []struct {
		inFlight int
		work     time.Duration
	}{{1, 0}, {32, 0}, {1, 2 * time.Millisecond}, {10, 2 * time.Millisecond}, {32, 2 * time.Millisecond}, {100, 2 * time.Millisecond}} {
		b.Run("inFlight="+strconv.Itoa(bench.inFlight)+"/work="+bench.work.String(), func(b *testing.B) {
			server := testenv.SQS(b)
			topic := server.NewQueue(b, nil)
			config := sqs.Config{}
			l := tap(&config)
			broker := newBroker(b, server, config)
			fill(b, newBroker(b, server, sqs.Config{}), topic, b.N)
			l.reset()
			var handled atomic.Int64
			done := make(chan struct{})
			b.ResetTimer()
			stop := route(b, subscriber(b, broker, brokers.SubscriberConfig{InFlight: bench.inFlight}), topic, func(*message.Message) error {
				if bench.work > 0 {
					<-time.After(bench.work)
				}
				if handled.Add(1) == int64(b.N) {
					close(done)
				}
				return nil
			})
			<-done
			b.StopTimer()
			stop()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(l.requests("ReceiveMessage", "DeleteMessageBatch"))/float64(b.N), "requests/msg")
		})
	}
}

func fill(tb testing.TB, b *sqs.Broker, topic string, n int) {
	tb.Helper()
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(newID(), make([]byte, 0, 1024))
		messages[i].Payload = append(messages[i].Payload, make([]byte, 1024)...)
		for j := range messages[i].Payload {
			messages[i].Payload[j] = 'x'
		}
	}
	publish(tb, b, topic, messages...)
}

// route runs a router until the returned function is called.
func route(tb testing.TB, s message.Subscriber, topic string, handler message.NoPublishHandlerFunc) (stop func()) {
	tb.Helper()
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		tb.Fatal(err)
	}
	router.AddConsumerHandler("bench", topic, s, handler)
	go func() { _ = router.Run(context.Background()) }()
	return func() { _ = router.Close() }
}

func BenchmarkPublish(b *testing.B) {
	for _, batch := range []int{1, 10, 100} {
		b.Run("batch="+strconv.Itoa(batch), func(b *testing.B) {
			server := testenv.SQS(b)
			topic := server.NewQueue(b, nil)
			p := publisher(b, newBroker(b, server, sqs.Config{}))
			messages := make([]*message.Message, batch)
			for i := range messages {
				messages[i] = message.NewMessage(newID(), []byte("payload"))
			}
			b.ResetTimer()
			for range b.N {
				if err := p.Publish(topic, messages...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
