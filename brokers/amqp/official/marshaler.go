package official

import (
	"errors"
	"fmt"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
)

// Marshaler reads and writes watermill-amqp's wire format. It also reads messages on which
// DefaultMarshaler fails: headers of any type become metadata, and a quorum queue's delivery counts
// do not. It sets message-id to the UUID. It is safe for concurrent use; the zero value is ready.
//
// A program that keeps its own watermill-amqp subscribers can use it in their configuration. It
// refuses the empty message that these read from a lost channel.
type Marshaler struct{}

var _ wmamqp.Marshaler = Marshaler{}

// Marshal returns a message's published form. It fails for metadata fields whose names are
// reserved, or too long for the protocol.
func (Marshaler) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	publishing, err := wire.Publishing(msg)
	if err != nil {
		return publishing, fmt.Errorf("amqp/official: %w", err)
	}
	publishing.Timestamp = time.Now()
	if len(msg.UUID) <= wire.LongestName {
		publishing.MessageId = msg.UUID
	}
	return publishing, nil
}

// errNothing makes watermill-amqp try a nack, which fails, and consume again.
var errNothing = errors.New("amqp/official: the consumer has lost its queue or its channel")

// Unmarshal returns the message of any delivery. It fails only for an empty one: when a consumer
// loses its queue or its channel, watermill-amqp reads an empty delivery, and consumes again if
// that fails.
func (Marshaler) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil {
		return nil, errNothing
	}
	return wire.Message(d.Headers, d.Body), nil
}
