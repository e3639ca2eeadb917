package wrapped

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Source is one Subscribe call of a library.
type Source interface {
	// Start lets the library consume. ctx has no end.
	Start(ctx context.Context) (message.Subscriber, <-chan *message.Message, error)

	// Read says what is known of a delivery.
	Read(from *message.Message) brokers.Delivery

	// Settle passes on what a handler has said, and returns when the library has taken it.
	// What is unsettled when draining ends is not passed on: closing the library gives it
	// back.
	Settle(from *message.Message, answer Answer)
}

// Answer is what a handler has said.
type Answer struct {
	Acked    bool
	GiveBack brokers.GiveBack // of a nack

	Closing <-chan struct{} // closed when the intake has ended: no message is kept back
}

// Subscriber is a message.Subscriber. Its fields are set once.
type Subscriber struct {
	Notice     string // logged at the beginning: what this library does not keep
	Serial     bool   // one message of each Subscribe call is in flight, whatever is asked for
	Initialize func(ctx context.Context, topic string) error
	Source     func(topic string, config brokers.SubscriberConfig) (Source, error)

	config        brokers.SubscriberConfig
	broker        *Set
	subscriptions openset.Set[*subscription]
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// Subscribe returns the messages of a topic. The channel is unbuffered. Errors are those of
// Initialize and of the source, or wrap brokers.ErrClosed.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.initialize(ctx, topic); err != nil {
		return nil, err
	}
	config := s.config
	config.Logger = config.Logger.With(watermill.LogFields{"topic": topic, "group": config.Group})
	source, err := s.Source(topic, config)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, source, config)
	// Not the caller's context: its end would take away what handlers have in hand.
	inner, in, err := source.Start(context.WithoutCancel(ctx))
	if err != nil {
		sub.stop()
		return nil, err
	}
	sub.inner = inner
	if !s.subscriptions.Add(sub) {
		sub.stop()
		leave(inner.Close, config.Logger)
		return nil, s.closed()
	}
	go func() {
		slots := config.InFlight
		if s.Serial {
			slots = 1
		}
		sub.run(in, slots)
		s.subscriptions.Remove(sub)
	}()
	return sub.out, nil
}

// SubscribeInitialize makes what Subscribe needs, if that is configured. Its errors are
// those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return s.initialize(context.Background(), topic)
}

func (s *Subscriber) initialize(ctx context.Context, topic string) error {
	if s.subscriptions.Closed() {
		return s.closed()
	}
	return s.Initialize(ctx, topic)
}

func (s *Subscriber) closed() error {
	return fmt.Errorf("%s: subscriber: %w", s.broker.Package, brokers.ErrClosed)
}

// Close stops the intake, waits for what is unsettled, at most
// SubscriberConfig.DrainTimeout, and closes the library, for which a server has some seconds
// more. It may be called many times, also at once, and always returns nil.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
