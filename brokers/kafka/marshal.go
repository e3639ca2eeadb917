package kafka

import (
	"bytes"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
)

// readRecord returns the message of any producer's record.
func readRecord(r *kgo.Record, payload []byte) *message.Message {
	headers := make([]wire.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = wire.Header{Key: h.Key, Value: h.Value}
	}
	return wire.Message(headers, payload)
}

// newRecord returns a message's record. It copies the payload: the client may still hold it when
// Publish gives up.
func (c *Publish) newRecord(topic string, msg *message.Message) (*kgo.Record, error) {
	headers, err := wire.Headers(msg)
	if err != nil {
		return nil, err
	}
	r := &kgo.Record{Topic: topic, Value: bytes.Clone(msg.Payload), Headers: make([]kgo.RecordHeader, len(headers))}
	for i, h := range headers {
		r.Headers[i] = kgo.RecordHeader{Key: h.Key, Value: h.Value}
	}
	copied := brokers.KeyOf(msg)
	switch {
	case copied != nil:
		r.Key = copied
	case c.Key != nil:
		err = callback.Call("kafka: Publish.Key", func() error {
			r.Key = c.Key(topic, msg)
			return nil
		})
	case c.KeyMetadata != "":
		if key, ok := msg.Metadata[c.KeyMetadata]; ok {
			r.Key = []byte(key)
		}
	}
	return r, err
}

// ReadRecord returns the message of any producer's record, in watermill-kafka's wire format. It is
// for a Consume.Unmarshal that handles only some records itself. The message shares nothing with r.
func ReadRecord(r *kgo.Record) *message.Message { return readRecord(r, bytes.Clone(r.Value)) }
