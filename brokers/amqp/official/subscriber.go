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
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The
// package documentation describes its deliveries.
type Subscriber struct {
	broker    *Broker
	declaring *amqp.Subscriber
	config    brokers.SubscriberConfig

	closing context.Context // ended by Close
	stop    context.CancelFunc

	mu            sync.Mutex
	subscriptions sync.WaitGroup // guarded by mu against Wait
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

func newSubscriber(b *Broker, declaring *amqp.Subscriber, config brokers.SubscriberConfig) *Subscriber {
	s := &Subscriber{broker: b, declaring: declaring, config: config}
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

// Subscribe declares the queue of the group for a topic and returns its messages, of
// which this call gets a share. The channel is unbuffered. Errors wrap brokers.ErrClosed,
// brokers.ErrUnavailable, amqp.ErrDeclaredOtherwise, amqp.ErrNotAllowed or
// amqp.ErrNotThere.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic)
	if s.broker.laid != nil {
		s.broker.laid(s, sub.wires)
	}
	declare := builder{s.declaring, exchanges{s.broker.config.Topology.AsIs}}
	inner, err := wmamqp.NewSubscriber(s.broker.watermill(s.config.Group, "consuming "+s.config.Group, sub.wires, reader{sub}, declare), sub.logger)
	if err != nil {
		sub.cancel()
		return nil, unavailable(err)
	}
	in, err := inner.Subscribe(sub.life, topic)
	if err != nil {
		sub.cancel()
		return nil, errors.Join(unavailable(err), inner.Close())
	}
	s.mu.Lock()
	closed := s.closing.Err() != nil
	if !closed {
		s.subscriptions.Add(1)
	}
	s.mu.Unlock()
	if closed {
		sub.end(inner)
		return nil, fmt.Errorf("amqp/official: subscriber: %w", brokers.ErrClosed)
	}
	go func() {
		defer s.subscriptions.Done()
		sub.run(inner, in)
	}()
	return sub.out, nil
}

// unavailable tells a broker that was lost from one that refuses.
func unavailable(err error) error {
	for _, known := range []error{brokers.ErrClosed, brokers.ErrUnavailable, amqp.ErrDeclaredOtherwise, amqp.ErrNotAllowed, amqp.ErrNotThere} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("amqp/official: %w: %w", brokers.ErrUnavailable, err)
}

// SubscribeInitialize declares what Subscribe does, so that messages published from now
// on wait for it. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if s.closing.Err() != nil {
		return fmt.Errorf("amqp/official: subscriber: %w", brokers.ErrClosed)
	}
	return s.declaring.SubscribeInitialize(topic)
}

// Close stops the intake, waits for what is unsettled, at most
// SubscriberConfig.DrainTimeout, and leaves the queue; for that the broker has some
// seconds more. It may be called many times, also at once, and always returns nil.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.subscriptions.Wait()
	_ = s.declaring.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
