package official

import (
	"fmt"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers/kafka/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
)

// Marshaler reads and writes watermill-kafka's wire format, and accepts more than DefaultMarshaler:
// no value of a repeated header is lost. It is safe for concurrent use. The zero value writes no
// keys.
//
// A program that keeps its own watermill-kafka subscribers can use it in their configuration.
type Marshaler struct {
	// Key returns a message's key, or nil for none.
	Key func(topic string, msg *message.Message) []byte
}

var _ wmkafka.MarshalerUnmarshaler = Marshaler{}

// Marshal returns a message's record. It fails if a metadata field has the name reserved for the
// UUID, and if Key panics.
func (m Marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	headers, err := wire.Headers(msg)
	if err != nil {
		return nil, fmt.Errorf("kafka/official: %w", err)
	}
	record := &sarama.ProducerMessage{
		Topic: topic, Value: sarama.ByteEncoder(msg.Payload), Headers: make([]sarama.RecordHeader, 0, len(headers)),
	}
	for _, h := range headers {
		record.Headers = append(record.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
	}
	if m.Key != nil {
		err = callback.Call("kafka/official: the function for keys", func() error {
			if key := m.Key(topic, msg); key != nil {
				record.Key = sarama.ByteEncoder(key)
			}
			return nil
		})
	}
	return record, err
}

// Unmarshal returns the message of any record. Its error is always nil. A record from a producer
// without Watermill has an empty UUID.
func (m Marshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	headers := make([]wire.Header, 0, len(record.Headers))
	for _, h := range record.Headers {
		if h != nil {
			headers = append(headers, wire.Header{Key: string(h.Key), Value: h.Value})
		}
	}
	return wire.Message(headers, record.Value), nil
}
