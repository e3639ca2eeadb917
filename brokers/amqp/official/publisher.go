package official

import (
	"context"
	"errors"
	"fmt"
	"sync"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// Publisher returns a new publisher, which has a connection of its own. It returns an error
// that wraps brokers.ErrClosed or brokers.ErrUnavailable. Publish returns nil when the broker
// has confirmed each message; its errors wrap brokers.ErrClosed, brokers.ErrUnavailable,
// amqp.ErrTooLarge, or are those of Subscribe. Messages that no queue takes are lost.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	dial := &dialer{config: &b.config}
	inner, err := wmamqp.NewPublisher(b.watermill(dial, "", "publishing", Marshaler{}, exchanges{b.config.Topology.AsIs}), newSerial(config.Logger))
	if err != nil {
		return nil, unavailable(err)
	}
	p := &publisher{broker: b, inner: inner, dial: dial, frame: inner.Connection().Config.FrameSize}
	if t := &b.config.Topology; t.Preset == amqp.PresetQueue && !t.AsIs {
		declaring, err := b.base.Subscriber(brokers.SubscriberConfig{Group: "publishing"})
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.declaring = declaring.(*amqp.Subscriber)
	}
	return b.open.Publisher(&wrapped.Publisher{Timeout: b.config.Publish.Timeout, Logger: config.Logger, Check: p.check, Send: p.send, Library: p.close})
}

// publisher declares queues first.
type publisher struct {
	broker    *Broker
	inner     *wmamqp.Publisher
	dial      *dialer
	frame     int              // the largest frame that the server takes; 0: any
	declaring *amqp.Subscriber // nil if there are no queues to declare
	declared  sync.Map         // topics whose queues are there
}

// check finds what the broker would close the channel over, or even the connection, and
// what watermill-amqp would send to nowhere.
func (p *publisher) check(topic string, msg *message.Message) error {
	const besideHeaders = 13 * (1 + wire.LongestName) // the other properties
	publishing, err := Marshaler{}.Marshal(msg)
	limit := p.broker.config.Publish.MaxBytes
	switch size := wire.Size(publishing.Headers); {
	case topic == "" || len(topic) > wire.LongestName:
		return fmt.Errorf("the topic has %d bytes: use 1 to %d", len(topic), wire.LongestName)
	case err != nil:
		return err
	case len(msg.Payload) > limit:
		return fmt.Errorf("%w: it has %d bytes, max_message_bytes is %d: make it smaller, or raise that, and max_message_size of the server", amqp.ErrTooLarge, len(msg.Payload), limit)
	case p.frame > 0 && size > p.frame-besideHeaders:
		return fmt.Errorf("%w: its headers have %d bytes, all together may have %d with the server's frame_max of %d: shorten the metadata",
			amqp.ErrTooLarge, size, p.frame-besideHeaders, p.frame)
	}
	return nil
}

func (p *publisher) send(_ context.Context, topic string, messages []*message.Message) error {
	if _, there := p.declared.Load(topic); p.declaring != nil && !there {
		if err := p.declaring.SubscribeInitialize(topic); err != nil {
			return err
		}
		p.declared.Store(topic, nil)
	}
	err := p.inner.Publish(topic, messages...)
	if err == nil {
		return nil
	}
	p.declared.Clear()
	code := 0
	if protocol := new(amqp091.Error); errors.As(err, &protocol) {
		code = protocol.Code
	}
	switch code {
	case amqp091.PreconditionFailed:
		return fmt.Errorf("%w: the exchange of %q: %w: use the same preset, exchange and exchange_type here as where it was declared, or use it as it is with declare=false", amqp.ErrDeclaredOtherwise, topic, err)
	case amqp091.AccessRefused:
		return fmt.Errorf("%w: the exchange of %q: %w: allow it with rabbitmqctl set_permissions", amqp.ErrNotAllowed, topic, err)
	default:
		return fmt.Errorf("amqp/official: publish to %q: %w: not confirmed: publish again (%w)", topic, brokers.ErrUnavailable, err)
	}
}

func (p *publisher) close() error {
	if p.declaring != nil {
		_ = p.declaring.Close() // never fails
	}
	defer p.dial.close()
	return p.inner.Close()
}
