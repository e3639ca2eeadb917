package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestTopicIsMadeAgain: the new topic is consumed from its beginning, within seconds, by
// the same Subscribe call.
func TestTopicIsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, protocol := range rotation.Some(t, 1, protocols) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 20
			topic := newTopic(t, testenv.Kafka(t), 2)
			fill(t, testenv.Kafka(t), topic, 2, n)
			b := newBroker(t, kafka.Config{Consume: kafka.Consume{Protocol: protocol, InFlightPerPartition: 2}})
			s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: 4})
			messages := subscribe(t, s, topic)
			ack := func(brokers.Delivery, *message.Message) error { return nil }
			held, _ := receive(t, messages) // of the old topic: its ack must not skip a new one
			before, after := newTally(), newTally()
			current := before
			seen := make(chan *message.Message)
			go func() {
				defer close(seen)
				for msg := range messages {
					seen <- msg
				}
			}()
			for range 2*n - 1 {
				select {
				case msg := <-seen:
					current.handle(msg, ack)
				case <-time.After(within):
					t.Fatal("not all messages of the old topic came")
				}
			}
			admin := kadm.NewClient(client(t, testenv.Kafka(t)))
			if _, err := admin.DeleteTopic(context.Background(), topic); err != nil {
				t.Fatal(err)
			}
			createTopic(t, testenv.Kafka(t), topic, 2, nil)
			started := time.Now()
			held.Ack()
			fill(t, testenv.Kafka(t), topic, 2, n)
			current = after
			for count := 0; count < 2*n; count, _ = after.count() {
				select {
				case msg := <-seen:
					current.handle(msg, ack)
				case <-time.After(within):
					t.Fatalf("%d of %d messages of the new topic came", count, 2*n)
				}
			}
			took := time.Since(started)
			t.Logf("the new topic was consumed after %s", took)
			if took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestTopicIsMissing(t *testing.T) {
	t.Parallel()
	b := newBroker(t, kafka.Config{})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: "group"})
	topic := "missing-" + uuid.NewString()
	_, err := s.Subscribe(context.Background(), topic)
	if !errors.Is(err, kafka.ErrNoTopic) || !strings.Contains(err.Error(), topic) || !strings.Contains(err.Error(), "create_topics=true") {
		t.Errorf("Subscribe returned %v", err)
	}
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	err = p.Publish(topic, message.NewMessage("a", nil))
	if !errors.Is(err, kafka.ErrNoTopic) || !strings.Contains(err.Error(), topic) {
		t.Errorf("Publish returned %v", err)
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("Publish needed %s to find out", took)
	}
	for _, name := range []string{"", "no spaces allowed"} {
		if _, err := s.Subscribe(context.Background(), name); err == nil {
			t.Errorf("topic %q was subscribed to", name)
		}
		if err := p.Publish(name, message.NewMessage("a", nil)); err == nil {
			t.Errorf("topic %q was published to", name)
		}
	}
}

func TestTopicIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{WaitForTopic: within}})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString()})
	topic := "later-" + uuid.NewString()
	subscribed := make(chan (<-chan *message.Message))
	go func() {
		messages, err := s.Subscribe(context.Background(), topic)
		if err != nil {
			t.Error(err)
		}
		subscribed <- messages
	}()
	select {
	case <-subscribed:
		t.Fatal("Subscribe did not wait")
	case <-time.After(300 * time.Millisecond):
	}
	createTopic(t, testenv.Kafka(t), topic, 1, nil)
	fill(t, testenv.Kafka(t), topic, 1, 1)
	msg, _ := receive(t, <-subscribed)
	msg.Ack()

	for try := 1; ; try++ {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(100*time.Millisecond, cancel)
		_, err := s.Subscribe(ctx, topic+"-never")
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Subscribe returned %v", err)
		}
		if errors.Is(err, kafka.ErrNoTopic) {
			break
		}
		if try == 50 { // the end may come in the middle of a question
			t.Fatalf("Subscribe does not say what it waited for: %v", err)
		}
	}
}

// TestPartitionsAreAdded: a group goes on with the new partitions from their beginning.
func TestPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, kafka.Config{})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: 2})
	messages := subscribe(t, s, topic)
	fill(t, testenv.Kafka(t), topic, 1, 1)
	msg, _ := receive(t, messages)
	msg.Ack()
	admin := kadm.NewClient(client(t, testenv.Kafka(t)))
	if _, err := admin.CreatePartitions(context.Background(), 1, topic); err != nil {
		t.Fatal(err)
	}
	c := client(t, testenv.Kafka(t), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := c.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Partition: 1}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	msg, d := receive(t, messages)
	msg.Ack()
	if d.Coordinates != topic+"/1/0" {
		t.Errorf("%s came", d.Coordinates)
	}
}
