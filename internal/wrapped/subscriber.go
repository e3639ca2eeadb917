package wrapped

import (
	"context"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

// Source is one Subscribe call of a library.
type Source interface {
	// Start lets the library consume. ctx has no end.
	Start(ctx context.Context) (message.Subscriber, <-chan *message.Message, error)

	// Read returns the facts of a delivery.
	Read(from *message.Message) brokers.Delivery

	// Settle passes a handler's answer on, and returns when the library has taken it.
	// Deliveries that are unsettled when draining ends get no answer: closing the library
	// gives them back.
	Settle(from *message.Message, answer Answer)
}

// Answer is a handler's ack or nack.
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
	subscriptions handout.Subscriptions[*subscription]
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
	desk := handout.New(ctx, s.config, watermill.LogFields{"topic": topic})
	messages, err := s.start(ctx, topic, desk)
	if err != nil {
		desk.Stop()
	}
	return messages, err
}

func (s *Subscriber) start(ctx context.Context, topic string, desk *handout.Desk) (<-chan *message.Message, error) {
	config := s.config
	config.Logger = desk.Logger()
	source, err := s.Source(topic, config)
	if err != nil {
		return nil, err
	}
	// Not the caller's context: its end would take away what handlers have in hand.
	inner, in, err := source.Start(context.WithoutCancel(ctx))
	if err != nil {
		return nil, err
	}
	sub := &subscription{Desk: desk, source: source, inner: inner, in: in, slots: config.InFlight}
	if s.Serial {
		sub.slots = 1
	}
	messages, err := s.subscriptions.Start(s.broker.Package, sub)
	if err != nil {
		leave(inner.Close, config.Logger)
	}
	return messages, err
}

// SubscribeInitialize creates what Subscribe needs, if that is configured. Its errors are
// those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	return s.initialize(context.Background(), topic)
}

func (s *Subscriber) initialize(ctx context.Context, topic string) error {
	if err := s.subscriptions.Open(s.broker.Package); err != nil {
		return err
	}
	return s.Initialize(ctx, topic)
}

// Close stops the intake, waits for what is unsettled, at most
// SubscriberConfig.DrainTimeout, and closes the library, for which a server has some seconds
// more. It may be called many times, also at once, and always returns nil.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
