package memory

import (
	"context"

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
)

// Subscribe returns the messages of a topic. The channel is unbuffered: a message counts as
// delivered when it is received. Errors wrap brokers.ErrClosed, except for an empty topic.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	t, err := s.open(topic)
	if err != nil {
		return nil, err
	}
	return s.subscriptions.Start(pkg, newSubscription(ctx, s, t))
}

// SubscribeInitialize adds the group to the topic, so that all messages published from now on wait
// for it. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	t, err := s.open(topic)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.join(s.config.Group)
	return nil
}

func (s *Subscriber) open(name string) (*topic, error) {
	if err := s.subscriptions.Open(pkg); err != nil {
		return nil, err
	}
	return s.broker.topic(name)
}

// Close stops the intake, and returns when every message is settled or after
// SubscriberConfig.DrainTimeout. It may be called again, and concurrently, and always returns nil.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}

// Abandon ends the subscriber as if its process had died. There is no drain: unsettled messages are
// redelivered at once, flagged Suspect, and count towards the delivery limit. Later acks and nacks
// of running handlers have no effect. It is for tests.
func (s *Subscriber) Abandon() {
	s.stop()
	s.subscriptions.Each(func(sub *subscription) { sub.Desk.Abandon() })
	_ = s.Close() // never fails
}

// stop refuses new subscriptions and ends the current ones' intake.
func (s *Subscriber) stop() {
	for _, sub := range s.subscriptions.Seal() {
		sub.Stop()
	}
}
