package kafka_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wk "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/internal/testenv"
)

func BenchmarkBare(b *testing.B) {
	for _, bench := range []struct {
		partitions int
		work       time.Duration
	}{{1, 0}, {8, 0}, {8, 2 * time.Millisecond}} {
		b.Run("partitions="+strconv.Itoa(bench.partitions)+"/work="+bench.work.String(), func(b *testing.B) {
			topic := newTopic(b, testenv.Kafka(b), int32(bench.partitions))
			load(b, topic, int32(bench.partitions), b.N)
			c := wk.DefaultSaramaSubscriberConfig()
			c.Consumer.Offsets.Initial = sarama.OffsetOldest
			s, err := wk.NewSubscriber(wk.SubscriberConfig{Brokers: testenv.Kafka(b), Unmarshaler: wk.DefaultMarshaler{}, OverwriteSaramaConfig: c, ConsumerGroup: uuid.NewString()}, watermill.NopLogger{})
			if err != nil {
				b.Fatal(err)
			}
			router, _ := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
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
