package amqp_test

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// TestFunctionsThatPanic: a message that the program's own function cannot read is
// delivered as one that nobody can read, and the next one comes. What cannot be published
// is an error.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Consume.Unmarshal = func(d *amqp091.Delivery) (*message.Message, error) {
			if testenv.Misread(d.Body) {
				return nil, nil //nolint:nilnil // which is what it must not do
			}
			return amqp.ReadDelivery(d), nil
		}
		config.Publish.Marshal = func(_ string, msg *message.Message, _ *amqp091.Publishing) error {
			if string(msg.Payload) == "no priority" {
				panic("no customer")
			}
			return nil
		}
		b, topic := newBroker(t, config), newTopic()
		p, err := b.Publisher(brokers.PublisherConfig{Logger: testenv.PanickingLogger{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Publish(topic, message.NewMessage("", []byte("no priority"))); err == nil || errors.Is(err, amqp.ErrUnroutable) {
			t.Errorf("published without what it should have: %v", err)
		}
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Logger: testenv.PanickingLogger{}}), topic)
		for _, payload := range append(testenv.Misreads(), "well") {
			if err := p.Publish(topic, message.NewMessage("", []byte(payload))); err != nil {
				t.Fatal(err)
			}
			msg, d := receive(t, out)
			if (d.Undecodable == nil) != (payload == "well") || string(msg.Payload) != payload {
				t.Errorf("%s: %q, %v", payload, msg.Payload, d.Undecodable)
			}
			msg.Ack()
		}
	})
}

// TestQueueNameThatPanics: both where the program asks, and where a goroutine of ours does.
func TestQueueNameThatPanics(t *testing.T) {
	t.Parallel()
	config := parse(t, testenv.RabbitMQ(t, rabbitmq.Packaged))
	config.Topology.Preset = amqp.PresetQueue
	config.Topology.Queue = func(string, string) string { panic("no such topic") }
	b, err := amqp.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := subscriber(t, b, brokers.SubscriberConfig{}).Subscribe(t.Context(), newTopic()); err == nil {
		t.Error("subscribed to a queue without a name")
	}
	if err := publisher(t, b).Publish(newTopic(), newMessages(1)...); err == nil {
		t.Error("published to a queue without a name")
	}
}
