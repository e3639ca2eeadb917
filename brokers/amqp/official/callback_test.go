package official_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// TestFunctionsThatPanic: a message that the program's own function cannot read is
// delivered as one that nobody can read, and the next one comes.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	config := parse(t, testenv.RabbitMQ(t, rabbitmq.Packaged))
	config.Consume.Unmarshal = func(d *amqp091.Delivery) (*message.Message, error) {
		if testenv.Misread(d.Body) {
			return nil, nil //nolint:nilnil // which is what it must not do
		}
		return amqp.ReadDelivery(d), nil
	}
	b, topic := newBroker(t, config), newTopic()
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group", Logger: testenv.PanickingLogger{}})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	p := newPublisher(t, b)
	for _, payload := range append(testenv.Misreads(), "well") {
		publish(t, p, topic, message.NewMessage("", []byte(payload)))
		msg := next(t, messages)
		d, _ := brokers.DeliveryOf(msg)
		if (d.Undecodable == nil) != (payload == "well") || string(msg.Payload) != payload {
			t.Errorf("%s: %q, %v", payload, msg.Payload, d.Undecodable)
		}
		msg.Ack()
	}
}
