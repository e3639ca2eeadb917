package amqp

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/publishing"
)

// publisher waits until the broker has confirmed each message. Errors wrap brokers.ErrClosed,
// [ErrUnroutable], [ErrRefused], [ErrTooLarge], [ErrDeclaredOtherwise], [ErrNotAllowed],
// [ErrNotThere], or brokers.ErrUnavailable if the broker did not answer within Publish.Timeout.
type publisher struct {
	publishing.Publisher[*outgoing]
}

func newPublisher(b *Broker) *publisher {
	return &publisher{publishing.Publisher[*outgoing]{
		Package: pkg, Timeout: b.config.Publish.Timeout,
		Open: func(_ context.Context, topic string) (publishing.Topic[*outgoing], error) {
			return &outlet{b, topic}, checkName("topic", topic)
		},
	}}
}

// outlet is a topic to publish to.
type outlet struct {
	broker *Broker
	topic  string
}

// Encode implements publishing.Topic.
func (o *outlet) Encode(msg *message.Message) (*outgoing, error) {
	return o.broker.outgoing(o.topic, msg)
}

// Send implements publishing.Topic.
func (o *outlet) Send(ctx context.Context, items []*outgoing, _ bool) []error {
	return o.broker.publish(ctx, "topic "+o.topic, func(c *connection) error { return o.broker.declareRoute(c, o.topic) }, items)
}

// outgoing returns a message's published form. It copies the payload: when Publish gives up, the
// message may still be in transit.
func (b *Broker) outgoing(topic string, msg *message.Message) (*outgoing, error) {
	publishing, err := wire.Publishing(msg)
	if err != nil {
		return nil, err
	}
	publishing.Body = bytes.Clone(msg.Payload)
	publishing.MessageId = messageID(msg.UUID)
	publishing.Timestamp = time.Now()
	if b.config.Publish.Marshal != nil {
		err := callback.Call("amqp: Publish.Marshal", func() error { return b.config.Publish.Marshal(topic, msg, &publishing) })
		if err != nil {
			return nil, err
		}
		if err := publishing.Headers.Validate(); err != nil {
			return nil, fmt.Errorf("amqp: a header of Publish.Marshal has a type that AMQP does not have: %w", err)
		}
	}
	if err := b.fits(len(publishing.Body), wire.Size(publishing.Headers)); err != nil {
		return nil, err
	}
	return &outgoing{route: b.config.Topology.route(topic), publishing: publishing}, nil
}

// messageID returns the UUID, so that others find it in the protocol's own field, or a random id.
// Each message needs one, because returns are matched by it.
func messageID(uuid string) string {
	if uuid == "" || len(uuid) > wire.LongestName {
		return watermill.NewUUID()
	}
	return uuid
}

// besideHeaders is how many bytes other properties take in the frame of the headers.
const besideHeaders = 13 * (1 + wire.LongestName)

// fits returns an error for a message over which the server would close the channel or the
// connection.
func (b *Broker) fits(body, headers int) error {
	b.mu.Lock()
	learned := b.tooLarge
	b.mu.Unlock()
	switch limit := b.config.Publish.MaxBytes; {
	case limit > 0 && body > limit:
		return errTooLarge(body, limit, "max_message_bytes")
	case learned > 0 && body >= learned:
		return errTooLarge(body, learned-1, "the server's max_message_size")
	case b.frame > 0 && headers > b.frame-besideHeaders:
		return fmt.Errorf("%w: its headers have %d bytes, and may have %d in all with the server's frame_max of %d: shorten the metadata",
			ErrTooLarge, headers, b.frame-besideHeaders, b.frame)
	}
	return nil
}
