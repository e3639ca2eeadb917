package kafka_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestFunctionsThatPanic: a message that the program's own function cannot read is
// delivered as one that nobody can read, and the next one comes. What cannot be published
// is an error.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, kafka.Config{
		Consume: kafka.Consume{Unmarshal: func(r *kgo.Record) (*message.Message, error) {
			if testenv.Misread(r.Value) {
				return nil, nil //nolint:nilnil // which is what it must not do
			}
			return kafka.ReadRecord(r), nil
		}},
		Publish: kafka.Publish{Key: func(_ string, msg *message.Message) []byte {
			if string(msg.Payload) == "no key" {
				panic("no customer")
			}
			return nil
		}},
	})
	p, err := b.Publisher(brokers.PublisherConfig{Logger: testenv.PanickingLogger{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, message.NewMessage("", []byte("no key"))); err == nil {
		t.Error("a message without the key that it should have was published")
	}
	messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), Logger: testenv.PanickingLogger{}}), topic)
	for _, payload := range append(testenv.Misreads(), "well") {
		if err := p.Publish(topic, message.NewMessage("", []byte(payload))); err != nil {
			t.Fatal(err)
		}
		msg, d := receive(t, messages)
		if (d.Undecodable == nil) != (payload == "well") || string(msg.Payload) != payload {
			t.Errorf("%s: %q, %v", payload, msg.Payload, d.Undecodable)
		}
		msg.Ack()
	}
}
