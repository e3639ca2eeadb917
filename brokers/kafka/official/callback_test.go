package official_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

type misreader struct{}

func (misreader) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if testenv.Misread(record.Value) {
		return nil, nil //nolint:nilnil // which is what it must not do
	}
	return official.Marshaler{}.Unmarshal(record)
}

// TestFunctionsThatPanic: a message that the program's own function cannot read is
// delivered as one that nobody can read, and the next one comes. What cannot be published
// is an error.
func TestFunctionsThatPanic(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, official.Config{
		Consume: official.Consume{Unmarshaler: misreader{}},
		Publish: official.Publish{Key: func(_ string, msg *message.Message) []byte {
			if string(msg.Payload) == "no key" {
				panic("no customer")
			}
			return nil
		}},
	})
	p := newPublisher(t, b)
	if err := p.Publish(topic, message.NewMessage("", []byte("no key"))); err == nil {
		t.Error("a message without the key that it should have was published")
	}
	s, messages := subscribe(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), Logger: testenv.PanickingLogger{}}, topic)
	defer s.Close()
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
