package nats

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

// Subscriber receives the messages of one group. It is safe for concurrent use. docs/brokers.md
// describes its deliveries.
type Subscriber struct {
	broker        *Broker
	config        brokers.SubscriberConfig
	subscriptions handout.Subscriptions[*subscription]
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
	from, err := s.find(ctx, topic)
	if err != nil {
		return nil, err
	}
	return s.subscriptions.Start(pkg, newSubscription(ctx, s, from))
}

// SubscribeInitialize adds the group to the topic's stream, so that all messages published from now
// on wait for it. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.find(context.Background(), topic)
	return err
}

// find returns the group's consumer for a topic.
func (s *Subscriber) find(ctx context.Context, topic string) (from source, err error) {
	if err := s.subscriptions.Open(pkg); err != nil {
		return from, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.broker.config.ConnectTimeout)
	defer cancel()
	from.topic = topic
	if from.stream, err = s.broker.stream(ctx, topic); err == nil {
		from.consumer, err = s.broker.consumer(ctx, from.stream, topic, s.config.Group)
	}
	return from, err
}

// Receiving implements brokers.Receiver. No messages come without a connection, or from a deleted
// stream or consumer.
func (s *Subscriber) Receiving() error {
	if !s.subscriptions.Closed() && !s.broker.conn.IsConnected() {
		return fmt.Errorf("nats: %w: there is no connection", brokers.ErrUnavailable)
	}
	return s.subscriptions.Receiving(func(sub *subscription) (string, error) {
		return fmt.Sprintf("nats: topic %q", sub.source.topic), sub.trouble.Problem()
	})
}

// Close stops the intake, and returns when every message is settled or after
// SubscriberConfig.DrainTimeout. It may be called again, and concurrently, and always returns nil:
// messages that cannot be settled are redelivered.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
