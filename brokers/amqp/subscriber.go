package amqp

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The
// package documentation describes its deliveries.
type Subscriber struct {
	broker    *Broker
	config    brokers.SubscriberConfig
	consuming *link

	subscriptions openset.Set[*subscription]
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ brokers.Receiver             = (*Subscriber)(nil)
)

func newSubscriber(b *Broker, config brokers.SubscriberConfig) *Subscriber {
	s := &Subscriber{broker: b, config: config}
	s.consuming = newLink(b, "consuming "+config.Group)
	return s
}

// Subscribe declares the queue of the group for a topic and returns its messages, of
// which this call gets a share. The channel is unbuffered: a message counts as begun when
// it is received. Errors wrap brokers.ErrClosed, brokers.ErrUnavailable,
// [ErrDeclaredOtherwise], [ErrNotAllowed] or [ErrNotThere].
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	queue, err := s.broker.config.Topology.queue(topic, s.config.Group)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic, queue)
	first, err := sub.begin(ctx)
	if err != nil {
		sub.cancel()
		return nil, err
	}
	if !s.subscriptions.Add(sub) {
		sub.cancel()
		go first.leave()
		return nil, fmt.Errorf("amqp: subscriber: %w", brokers.ErrClosed)
	}
	go func() {
		sub.run(first)
		s.subscriptions.Remove(sub)
	}()
	return sub.out, nil
}

// SubscribeInitialize declares what Subscribe does, so that messages published from now
// on wait for it. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := s.open(); err != nil {
		return err
	}
	queue, err := s.broker.config.Topology.queue(topic, s.config.Group)
	if err != nil {
		return err
	}
	_, err = s.prepare(context.Background(), topic, queue)
	return err
}

// prepare returns a connection, with everything declared.
func (s *Subscriber) prepare(ctx context.Context, topic, queue string) (*connection, error) {
	conn, err := s.consuming.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer s.broker.impatient(conn)()
	if err := s.broker.declareQueue(conn, topic, queue); err != nil {
		return nil, unavailable(err)
	}
	return conn, nil
}

func (s *Subscriber) open() error {
	if s.subscriptions.Closed() {
		return fmt.Errorf("amqp: subscriber: %w", brokers.ErrClosed)
	}
	return nil
}

// Close stops the intake, gives back what nobody has received, and returns when the rest
// is settled, or after SubscriberConfig.DrainTimeout. It may be called many times, also
// at once, and always returns nil: what the broker does not hear of comes again.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.consuming.close()
	s.broker.subscribers.Remove(s)
	return nil
}

// Receiving implements brokers.Receiver: a subscriber whose connection or consumer has ended
// gets nothing until it has another one, though the broker may answer publishers.
func (s *Subscriber) Receiving() error {
	var errs []error
	for _, sub := range s.subscriptions.All() {
		if why := sub.away.Load(); why != nil {
			errs = append(errs, fmt.Errorf("amqp: topic %s, queue %s: %w: %w", sub.topic, sub.queue, brokers.ErrUnavailable, *why))
		}
	}
	return errors.Join(errs...)
}
