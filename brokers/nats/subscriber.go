package nats

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The package
// documentation describes its deliveries.
type Subscriber struct {
	broker        *Broker
	config        brokers.SubscriberConfig
	subscriptions openset.Set[*subscription]
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ brokers.Receiver             = (*Subscriber)(nil)
)

// Subscribe returns the messages of a topic. The channel is unbuffered: a message counts as
// delivered when it is received. Errors wrap brokers.ErrClosed, [ErrTopic], [ErrNoStream],
// [ErrConsumerDiffers], or brokers.ErrUnavailable if there is no answer in time.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.open(ctx, topic)
	if err != nil {
		return nil, err
	}
	if !s.subscriptions.Add(sub) {
		sub.desk.Stop()
		return nil, fmt.Errorf("nats: subscriber: %w", brokers.ErrClosed)
	}
	go func() {
		sub.run()
		s.subscriptions.Remove(sub)
	}()
	return sub.desk.Messages(), nil
}

// SubscribeInitialize makes the group known to the topic's stream, so that everything
// published from now on waits for it. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	sub, err := s.open(context.Background(), topic)
	if err == nil {
		sub.desk.Stop()
	}
	return err
}

func (s *Subscriber) open(ctx context.Context, topic string) (*subscription, error) {
	if s.subscriptions.Closed() {
		return nil, fmt.Errorf("nats: subscriber: %w", brokers.ErrClosed)
	}
	asking, cancel := context.WithTimeout(ctx, s.broker.config.ConnectTimeout)
	defer cancel()
	stream, err := s.broker.stream(asking, topic)
	if err != nil {
		return nil, err
	}
	consumer, err := s.broker.consumer(asking, stream, topic, s.config.Group)
	if err != nil {
		return nil, err
	}
	return newSubscription(ctx, s, source{topic: topic, stream: stream, consumer: consumer}), nil
}

// Receiving implements brokers.Receiver: messages cannot come without a connection, and not
// from a stream or consumer that is gone.
func (s *Subscriber) Receiving() error {
	if !s.broker.conn.IsConnected() {
		return fmt.Errorf("nats: %w: there is no connection", brokers.ErrUnavailable)
	}
	var err error
	s.subscriptions.Each(func(sub *subscription) {
		if why := sub.away.Load(); why != nil && err == nil {
			err = fmt.Errorf("nats: topic %q: %w: %w", sub.source.topic, brokers.ErrUnavailable, *why)
		}
	})
	return err
}

// Close stops the intake and returns when every message is settled, or after
// SubscriberConfig.DrainTimeout. It may be called many times, also at once, and always
// returns nil: what cannot be settled comes again.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
