package official

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/openset"
)

// Broker is a RabbitMQ broker. It is safe for concurrent use.
type Broker struct {
	config      Config
	credentials amqp091.Authentication
	base        *amqp.Broker // asks the server what it is, and declares; watermill-amqp does the rest

	subscribers openset.Set[*Subscriber]
	publishers  openset.Set[*publisher]

	// laid, if not nil, hears of the connections of each Subscribe call. Tests cut them.
	laid func(*Subscriber, *wires)
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// Ping asks the server once whether it answers; see amqp.Broker.Ping.
func (b *Broker) Ping(ctx context.Context) error { return b.base.Ping(ctx) }

// New connects to the broker. It returns an error that names every invalid field, or
// one that says why the broker cannot be used, at the latest after
// Config.ConnectTimeout; the latter wraps brokers.ErrUnavailable.
func New(ctx context.Context, config Config) (*Broker, error) {
	base, err := amqp.New(ctx, config.Config)
	if err != nil {
		return nil, err
	}
	b := &Broker{base: base}
	b.credentials = config.settle()
	b.config = config
	return b, nil
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. It returns an error
// that names every invalid field, or one that wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults("amqp/official")
	if err != nil {
		return nil, err
	}
	silent := config
	silent.Logger = nil // what it would say is true of the other adapter
	declaring, err := b.base.Subscriber(silent)
	if err != nil {
		return nil, err
	}
	config.Logger = newSerial(config.Logger)
	s := newSubscriber(b, declaring.(*amqp.Subscriber), config)
	if !b.subscribers.Add(s) {
		return nil, errors.Join(fmt.Errorf("amqp/official: broker: %w", brokers.ErrClosed), declaring.Close())
	}
	limit := b.Capabilities().DeliveryLimit
	config.Logger.Info("Messages are given back by basic.nack, one is in flight for each Subscribe", watermill.LogFields{
		"nacks_count_as_deliveries": !b.Capabilities().FreeGiveBack, "delivery_limit_known": limit.Known, "delivery_limit": limit.Max,
	})
	return s, nil
}

// Publisher returns a new publisher, which has a connection of its own. It returns an
// error that wraps brokers.ErrClosed or brokers.ErrUnavailable.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	p, err := newPublisher(b, config)
	if err != nil {
		return nil, err
	}
	if !b.publishers.Add(p) {
		return nil, errors.Join(fmt.Errorf("amqp/official: broker: %w", brokers.ErrClosed), p.Close())
	}
	return p, nil
}

// Capabilities says what the server does with what watermill-amqp can say to it.
func (b *Broker) Capabilities() brokers.Capabilities {
	c := b.base.Capabilities()
	c.DelayedGiveBack = true // by keeping the message
	if c.FreeGiveBack && c.DeliveryLimit.Max > 0 {
		// A nack counts for nothing there, and there is no other way to say that a
		// handler has failed. What counts are lost connections alone.
		c.DeliveryLimit = brokers.DeliveryLimit{}
	}
	return c
}

// Close closes the subscribers that are open, as Subscriber.Close does, and then the
// publishers, which finish what they are publishing. It may be called many times.
func (b *Broker) Close() error {
	_ = b.subscribers.Close() // never fails
	_ = b.publishers.Close()  // never fails
	return b.base.Close()
}
