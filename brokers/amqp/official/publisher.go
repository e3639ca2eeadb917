package official

import (
	"context"
	"errors"
	"fmt"
	"sync"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// Publisher returns a new publisher with its own connection. The error wraps brokers.ErrClosed or
// brokers.ErrUnavailable. Publish returns nil when the broker has confirmed each message. Its
// errors wrap brokers.ErrClosed, brokers.ErrUnavailable, amqp.ErrTooLarge, or are those of
// Subscribe. Messages without a queue are lost.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	dial := &dialer{config: &b.config}
	inner, err := wmamqp.NewPublisher(b.watermill(dial, "", "publishing", Marshaler{}, exchanges{b.config.Topology.AsIs}), serial(config.Logger))
	if err != nil {
		return nil, unavailable(err)
	}
	p := &publisher{broker: b, inner: inner, dial: dial}
	if t := &b.config.Topology; t.Preset == amqp.PresetQueue && !t.AsIs {
		declaring, err := b.base.Subscriber(brokers.SubscriberConfig{Group: "publishing"})
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
		p.declaring = declaring.(*amqp.Subscriber)
	}
	return b.open.Publisher(&wrapped.Publisher{Timeout: b.config.Publish.Timeout, Logger: config.Logger, Check: p.check, Send: p.send, Library: p.close})
}

// publisher declares queues before it publishes.
type publisher struct {
	broker    *Broker
	inner     *wmamqp.Publisher
	dial      *dialer
	declaring *amqp.Subscriber // nil if there are no queues to declare
	declared  sync.Map         // topics whose queues are declared
}

// check finds messages over which the broker would close the channel or the connection, and topics
// that watermill-amqp would silently drop.
func (p *publisher) check(topic string, msg *message.Message) error {
	if topic == "" || len(topic) > wire.LongestName {
		return fmt.Errorf("the topic has %d bytes: use 1 to %d", len(topic), wire.LongestName)
	}
	publishing, err := Marshaler{}.Marshal(msg)
	if err != nil {
		return err
	}
	return p.broker.account.Fits(len(msg.Payload), wire.Size(publishing.Headers))
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
	if explained := p.broker.account.Explain("exchange of "+topic, err); errors.Is(explained, amqp.ErrDeclaredOtherwise) || errors.Is(explained, amqp.ErrNotAllowed) {
		return explained
	}
	return fmt.Errorf("amqp/official: publish to %q: %w: not confirmed: publish again (%w)", topic, brokers.ErrUnavailable, err)
}

func (p *publisher) close() error {
	if p.declaring != nil {
		_ = p.declaring.Close() // never fails
	}
	defer p.dial.close()
	return p.inner.Close()
}
