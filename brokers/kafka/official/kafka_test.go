package official_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

const within = 30 * time.Second

func newBroker(t *testing.T, config official.Config) *official.Broker {
	t.Helper()
	config.Brokers = testenv.Kafka(t)
	b, err := official.New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func newPublisher(t *testing.T, b *official.Broker) message.Publisher {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func publish(t *testing.T, p message.Publisher, topic string, messages ...*message.Message) {
	t.Helper()
	if err := p.Publish(topic, messages...); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, b *official.Broker, config brokers.SubscriberConfig, topic string) (message.Subscriber, <-chan *message.Message) {
	t.Helper()
	s, err := b.Subscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return s, messages
}

func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return msg
	case <-time.After(within):
		t.Fatalf("no message within %s", within)
	}
	return nil
}

func newMessage(payload string) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(payload))
	msg.Metadata.Set("binary", "\xff\x00")
	return msg
}

// TestPlainWatermillKafka exchanges messages with a program on watermill-kafka alone.
func TestPlainWatermillKafka(t *testing.T) {
	addresses := testenv.Kafka(t)
	topic := newTopic(t, addresses, 1)
	theirs, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: addresses}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	b := newBroker(t, official.Config{})
	_, ours := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	sent := newMessage("theirs")
	publish(t, theirs, topic, sent)
	got := next(t, ours)
	if !got.Equals(sent) {
		t.Errorf("theirs became %+v", got)
	}
	if partition, ok := wmkafka.MessagePartitionFromCtx(got.Context()); !ok || partition != 0 {
		t.Error("the context has lost what watermill-kafka says")
	}
	got.Ack()

	config := wmkafka.DefaultSaramaSubscriberConfig()
	subscriber, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: addresses, ConsumerGroup: topic + "-theirs", OverwriteSaramaConfig: config, Unmarshaler: official.Marshaler{},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	topic = newTopic(t, addresses, 1)
	config.Consumer.Offsets.Initial = -2 // oldest
	messages, err := subscriber.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	sent = newMessage("ours")
	publish(t, newPublisher(t, b), topic, sent)
	if got = next(t, messages); !got.Equals(sent) {
		t.Errorf("ours became %+v", got)
	}
	got.Ack()
}

// TestMissingTopic: nobody learns of it by Subscribe, which begins when it is there; a
// message for it is not published.
func TestMissingTopic(t *testing.T) {
	b := newBroker(t, official.Config{})
	topic := "official-late-" + watermill.NewUUID()
	if err := newPublisher(t, b).Publish(topic, newMessage("x")); !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("Publish returned %v", err)
	}
	s, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	maker := newBroker(t, official.Config{Publish: official.Publish{CreateTopics: true}})
	other, err := maker.Subscriber(brokers.SubscriberConfig{Group: topic + "-2"})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.(message.SubscribeInitializer).SubscribeInitialize(topic); err != nil {
		t.Fatal(err)
	}
	publish(t, newPublisher(t, b), topic, newMessage("late"))
	next(t, messages).Ack()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestTooLarge(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 1)
	for name, config := range map[string]official.Publish{"for the client": {}, "for the broker": {MaxBytes: 10 << 20}} {
		b := newBroker(t, official.Config{Publish: config})
		err := newPublisher(t, b).Publish(topic, newMessage(strings.Repeat("x", 2<<20)))
		if !errors.Is(err, brokers.ErrTooLarge) || !strings.Contains(err.Error(), "max_message_bytes") {
			t.Errorf("too large %s: Publish returned %v", name, err)
		}
	}
}

func TestKeys(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 4)
	b := newBroker(t, official.Config{Publish: official.Publish{KeyMetadata: "customer"}})
	_, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	sent := newMessage("x")
	sent.Metadata.Set("customer", "42")
	publish(t, newPublisher(t, b), topic, sent)
	msg := next(t, messages)
	if d, _ := brokers.DeliveryOf(msg); string(d.Key) != "42" {
		t.Errorf("the key is %q", d.Key)
	}
	msg.Ack()
}

// TestTracer runs watermill-kafka's own tracer, which wraps what this package wraps.
func TestTracer(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, official.Config{Tracer: wmkafka.NewOTELSaramaTracer()})
	s, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	sent := newMessage("traced")
	publish(t, newPublisher(t, b), topic, sent)
	msg := next(t, messages)
	if msg.UUID != sent.UUID || string(msg.Payload) != "traced" {
		t.Errorf("message %q came", msg.Payload)
	}
	msg.Ack()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRebalanceWaitsForTheHandler, with the whole group, which kafka:// does not do; the ack
// of a handler that ran meanwhile counts.
func TestRebalanceWaitsForTheHandler(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 2)
	b := newBroker(t, official.Config{})
	config := brokers.SubscriberConfig{Group: topic, InFlight: 2}
	_, first := subscribe(t, b, config, topic)
	p := newPublisher(t, b)
	publish(t, p, topic, newMessage("0"))
	slow := next(t, first)
	_, second := subscribe(t, b, config, topic)
	<-time.After(6 * time.Second) // longer than a heartbeat
	publish(t, p, topic, newMessage("1"), newMessage("2"))
	select {
	case msg := <-first:
		t.Errorf("%q came in a rebalance", msg.Payload)
	case msg := <-second:
		t.Errorf("%q came in a rebalance", msg.Payload)
	case <-time.After(time.Second):
	}
	slow.Ack()
	for got := make(map[string]bool); len(got) < 2; {
		var msg *message.Message
		select {
		case msg = <-first:
		case msg = <-second:
		case <-time.After(within):
			t.Fatal("the rebalance did not end with the handler")
		}
		if msg.UUID == slow.UUID {
			t.Error("an ack in a rebalance did not count")
		}
		got[msg.UUID] = true
		msg.Ack()
	}
}
