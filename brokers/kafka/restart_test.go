package kafka_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestGracefulRestartRedeliversNothing: also when messages were settled out of order,
// and some were nacked.
func TestGracefulRestartRedeliversNothing(t *testing.T) {
	t.Parallel()
	const partitions, n = 4, 500
	topic, group := newTopic(t, testenv.Kafka(t), partitions), uuid.NewString()
	fill(t, testenv.Kafka(t), topic, partitions, n)
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{InFlightPerPartition: 32}})
	l := newTally()
	acked := newTally()
	for restart := 1; restart <= 4; restart++ {
		s := subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 100})
		done := l.consume(subscribe(t, s, topic), func(d brokers.Delivery, msg *message.Message) error {
			<-time.After(time.Duration(rand.IntN(10)) * time.Millisecond)
			if rand.IntN(20) == 0 {
				return errPoison
			}
			acked.mu.Lock()
			defer acked.mu.Unlock()
			acked.began(d)
			return nil
		})
		acked.wait(t, restart*partitions*n/4)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		done.Wait()
	}
	messages, deliveries := acked.count()
	t.Logf("%d messages were acked %d times", messages, deliveries)
	if messages != partitions*n || deliveries != messages {
		t.Errorf("%d messages of %d were acked %d times", messages, partitions*n, deliveries)
	}
}

// TestBrokerIsKilled: consuming and publishing resume by themselves, and nothing is lost.
func TestBrokerIsKilled(t *testing.T) {
	t.Parallel()
	const n = 300
	server := testenv.PrivateKafka(t)
	addresses := []string{server.Address()}
	topic := newTopic(t, addresses, 2)
	fill(t, addresses, topic, 2, n)
	b := newBroker(t, kafka.Config{Brokers: addresses, Consume: kafka.Consume{InFlightPerPartition: 4}})
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	l := newTally()
	s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: 8})
	done := l.consume(subscribe(t, s, topic), func(brokers.Delivery, *message.Message) error {
		<-time.After(5 * time.Millisecond)
		return nil
	})
	l.wait(t, n/2)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	published := make(chan error, 1)
	go func() {
		published <- p.Publish(topic, message.NewMessage("a", nil), message.NewMessage("b", nil))
	}()
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.Now()
	if err := <-published; err != nil {
		t.Fatal(err)
	}
	l.wait(t, 2*n+2)
	t.Logf("all was handled %s after the broker was back", time.Since(back))
	_ = s.Close()
	done.Wait()
	messages, deliveries := l.count()
	if messages != 2*n+2 {
		t.Errorf("%d messages, %d deliveries", messages, deliveries)
	}
}
