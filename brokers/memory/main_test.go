package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within is how long tests wait for what must happen. Inside testing/synctest it
// takes no time.
const within = 30 * time.Second

func newBroker(t *testing.T, config memory.Config) *memory.Broker {
	t.Helper()
	broker, err := memory.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	return broker
}

func newPublisher(t *testing.T, broker *memory.Broker) message.Publisher {
	t.Helper()
	p, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// publish publishes messages whose UUIDs and payloads are ids.
func publish(t *testing.T, broker *memory.Broker, topic string, ids ...string) {
	t.Helper()
	p := newPublisher(t, broker)
	for _, id := range ids {
		if err := p.Publish(topic, message.NewMessage(id, []byte(id))); err != nil {
			t.Fatal(err)
		}
	}
}

func newSubscriber(t *testing.T, broker *memory.Broker, config brokers.SubscriberConfig) *memory.Subscriber {
	t.Helper()
	if config.Group == "" {
		config.Group = "group"
	}
	if config.DrainTimeout == 0 {
		config.DrainTimeout = 50 * time.Millisecond
	}
	s, err := broker.Subscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*memory.Subscriber)
}

// subscribe opens a subscriber and subscribes it.
func subscribe(t *testing.T, broker *memory.Broker, topic string, config brokers.SubscriberConfig) (*memory.Subscriber, <-chan *message.Message) {
	t.Helper()
	s := newSubscriber(t, broker, config)
	messages, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return s, messages
}

// receive expects the message id.
func receive(t *testing.T, messages <-chan *message.Message, id string) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		switch {
		case !ok:
			t.Fatalf("the output channel is closed, %q was expected", id)
		case msg.UUID != id:
			t.Fatalf("%q came instead of %q", msg.UUID, id)
		}
		return msg
	case <-time.After(within):
		t.Fatalf("%q did not come within %s", id, within)
	}
	return nil
}

func receiveAndAck(t *testing.T, messages <-chan *message.Message, ids ...string) {
	t.Helper()
	for _, id := range ids {
		receive(t, messages, id).Ack()
	}
}

func fail(t *testing.T, msg *message.Message) {
	t.Helper()
	if !brokers.SetGiveBack(msg, brokers.GiveBack{Failed: true}) {
		t.Fatal("brokers.SetGiveBack does not work")
	}
	msg.Nack()
}

func delivery(t *testing.T, msg *message.Message) brokers.Delivery {
	t.Helper()
	d, ok := brokers.DeliveryOf(msg)
	if !ok {
		t.Fatal("the message carries no brokers.Delivery")
	}
	return d
}
