package kafka

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

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

// Subscribe joins the group for a topic, as a separate member, and returns the messages of its
// partitions. The channel is unbuffered: a message counts as delivered when it is received. Errors
// wrap brokers.ErrClosed, [ErrNoTopic], or brokers.ErrUnavailable if the broker does not answer in
// time.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	id, err := s.ready(ctx, topic)
	if err != nil {
		return nil, err
	}
	sub, err := newSubscription(ctx, s, topic, id)
	if err != nil {
		return nil, err
	}
	messages, err := s.subscriptions.Start(pkg, sub)
	if err != nil {
		go sub.first.end(leaveAtOnce)
	}
	return messages, err
}

// SubscribeInitialize creates the topic if that is configured, and otherwise checks that it exists.
// Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.ready(context.Background(), topic)
	return err
}

func (s *Subscriber) ready(ctx context.Context, topic string) (kadm.TopicID, error) {
	if err := s.subscriptions.Open(pkg); err != nil {
		return kadm.TopicID{}, err
	}
	return s.broker.ensureTopic(ctx, topic, s.broker.config.Consume.WaitForTopic)
}

// Receiving implements brokers.Receiver. A subscriber that the group removed, or that got no answer
// for a session timeout, receives nothing, although the cluster may answer others. A member without
// partitions counts as receiving.
func (s *Subscriber) Receiving() error {
	return s.subscriptions.Receiving(func(sub *subscription) (string, error) {
		return fmt.Sprintf("kafka: topic %s, group %s", sub.topic, s.config.Group), sub.receiving()
	})
}

// Close stops the intake, waits until every message is settled, for SubscriberConfig.DrainTimeout
// at most, and commits, for which the broker has five more seconds. It may be called again, and
// concurrently, and always returns nil: messages that cannot be committed are redelivered.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
