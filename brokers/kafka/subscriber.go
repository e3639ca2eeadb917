package kafka

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The
// package documentation describes its deliveries.
type Subscriber struct {
	broker *Broker
	config brokers.SubscriberConfig

	subscriptions openset.Set[*subscription]
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ brokers.Receiver             = (*Subscriber)(nil)
)

func newSubscriber(b *Broker, config brokers.SubscriberConfig) *Subscriber {
	return &Subscriber{broker: b, config: config}
}

// Subscribe joins the group for a topic, as a member of its own, and returns the
// messages of the partitions that it is given. The channel is unbuffered: a message
// counts as delivered when it is received. Errors wrap brokers.ErrClosed, [ErrNoTopic],
// or brokers.ErrUnavailable if the broker does not answer in time.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	id, err := s.ready(ctx, topic)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic)
	first, err := newSession(sub, id)
	if err != nil {
		sub.cancel()
		return nil, err
	}
	if !s.subscriptions.Add(sub) {
		sub.cancel()
		go first.end(leaveAtOnce)
		return nil, fmt.Errorf("kafka: subscriber: %w", brokers.ErrClosed)
	}
	go func() {
		sub.run(first)
		s.subscriptions.Remove(sub)
	}()
	return sub.out, nil
}

// SubscribeInitialize makes the topic if that is configured, and otherwise asks whether
// it exists. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.ready(context.Background(), topic)
	return err
}

func (s *Subscriber) ready(ctx context.Context, topic string) (kadm.TopicID, error) {
	if s.subscriptions.Closed() {
		return kadm.TopicID{}, fmt.Errorf("kafka: subscriber: %w", brokers.ErrClosed)
	}
	return s.broker.ensureTopic(ctx, topic, s.broker.config.Consume.WaitForTopic)
}

// Close stops the intake, waits until every message is settled, at most
// SubscriberConfig.DrainTimeout, and commits what was; for that a broker has five
// seconds more. It may be called many times, also at once, and always returns nil: what
// cannot be committed comes again.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
