package official

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
)

// Broker is a RabbitMQ broker. It is safe for concurrent use.
type Broker struct {
	config      Config
	credentials amqp091.Authentication
	base        *amqp.Broker // asks the server what it is, and declares; watermill-amqp does the rest

	mu          sync.Mutex
	closed      bool
	subscribers map[*Subscriber]struct{}
	publishers  map[*publisher]struct{}

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
	b := &Broker{base: base, subscribers: make(map[*Subscriber]struct{}), publishers: make(map[*publisher]struct{})}
	b.credentials = config.settle()
	b.config = config
	return b, nil
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. It returns an error
// that names every invalid field, or one that wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	logger := config.Logger
	config.Logger = nil // what it would say is true of the other adapter
	declaring, err := b.base.Subscriber(config)
	if err != nil {
		return nil, err
	}
	if config.DrainTimeout == 0 {
		config.DrainTimeout = defaultDrainTimeout
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	config.Logger = newSerial(logger)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(fmt.Errorf("amqp/official: broker: %w", brokers.ErrClosed), declaring.Close())
	}
	limit := b.Capabilities().DeliveryLimit
	config.Logger.Info("Messages are given back by basic.nack, one is in flight for each Subscribe", watermill.LogFields{
		"nacks_count_as_deliveries": !b.Capabilities().FreeGiveBack, "delivery_limit_known": limit.Known, "delivery_limit": limit.Max,
	})
	s := newSubscriber(b, declaring.(*amqp.Subscriber), config)
	b.subscribers[s] = struct{}{}
	return s, nil
}

// Publisher returns a new publisher, which has a connection of its own. It returns an
// error that wraps brokers.ErrClosed or brokers.ErrUnavailable.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	if config.Logger == nil {
		config.Logger = watermill.NopLogger{}
	}
	p, err := newPublisher(b, config)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	closed := b.closed
	if !closed {
		b.publishers[p] = struct{}{}
	}
	b.mu.Unlock()
	if closed {
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
	b.mu.Lock()
	b.closed = true
	open := make([]*Subscriber, 0, len(b.subscribers))
	for s := range b.subscribers {
		open = append(open, s)
	}
	publishers := make([]*publisher, 0, len(b.publishers))
	for p := range b.publishers {
		publishers = append(publishers, p)
	}
	b.mu.Unlock()

	var closing sync.WaitGroup
	for _, s := range open {
		closing.Go(func() { _ = s.Close() }) // never fails
	}
	closing.Wait()
	for _, p := range publishers {
		closing.Go(func() { _ = p.Close() }) // never fails
	}
	closing.Wait()
	return b.base.Close()
}
