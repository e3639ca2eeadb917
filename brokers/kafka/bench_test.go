package kafka_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// BenchmarkConsume is under Watermill's router, with 1 KiB messages. An operation is one
// message.
func BenchmarkConsume(b *testing.B) {
	for _, bench := range []struct {
		partitions, inFlight int
		work                 time.Duration
	}{{1, 1, 0}, {8, 1, 0}, {8, 32, 0}, {8, 1, 2 * time.Millisecond}, {8, 32, 2 * time.Millisecond}} {
		name := "partitions=" + strconv.Itoa(bench.partitions) + "/inFlight=" + strconv.Itoa(bench.inFlight) + "/work=" + bench.work.String()
		b.Run(name, func(b *testing.B) {
			topic := newTopic(b, testenv.Kafka(b), int32(bench.partitions))
			load(b, topic, int32(bench.partitions), b.N)
			broker := newBroker(b, kafka.Config{Consume: kafka.Consume{InFlightPerPartition: bench.inFlight}})
			s := subscriber(b, broker, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: bench.partitions * bench.inFlight})
			router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
			if err != nil {
				b.Fatal(err)
			}
			var handled atomic.Int64
			done := make(chan struct{})
			router.AddConsumerHandler("bench", topic, s, func(*message.Message) error {
				if bench.work > 0 {
					<-time.After(bench.work)
				}
				if handled.Add(1) == int64(b.N) {
					close(done)
				}
				return nil
			})
			b.ResetTimer()
			go func() { _ = router.Run(context.Background()) }()
			<-done
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			_ = router.Close()
		})
	}
}

func load(b *testing.B, topic string, partitions int32, n int) {
	b.Helper()
	c := client(b, testenv.Kafka(b), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	value := make([]byte, 1024)
	for i := range n {
		c.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := c.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPublish(b *testing.B) {
	for _, batch := range []int{1, 100} {
		b.Run("batch="+strconv.Itoa(batch), func(b *testing.B) {
			topic := newTopic(b, testenv.Kafka(b), 1)
			p := publisher(b, newBroker(b, kafka.Config{}))
			messages := make([]*message.Message, batch)
			for i := range messages {
				messages[i] = message.NewMessage(uuid.NewString(), make([]byte, 1024))
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
