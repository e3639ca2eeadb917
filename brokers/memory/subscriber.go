package memory

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The
// package documentation describes its deliveries.
type Subscriber struct {
	broker *Broker
	config brokers.SubscriberConfig

	once      sync.Once
	abandoned chan struct{} // closed by Abandon

	mu            sync.Mutex
	closed        bool
	subscriptions map[*subscription]struct{}
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// Subscribe returns the messages of a topic. The channel is unbuffered: a message
// counts as delivered when it is received. Errors wrap brokers.ErrClosed, except
// for an empty topic.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("memory: subscriber: %w", brokers.ErrClosed)
	}
	t, err := s.broker.topic(topic)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, t)
	s.subscriptions[sub] = struct{}{}
	go func() {
		sub.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subscriptions, sub)
	}()
	return sub.out, nil
}

// SubscribeInitialize makes the group known to the topic, so that everything
// published from now on waits for it. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("memory: subscriber: %w", brokers.ErrClosed)
	}
	t, err := s.broker.topic(topic)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.join(s.config.Group)
	return nil
}

// Close stops the intake and returns when every message is settled, or after
// SubscriberConfig.DrainTimeout. It may be called many times, also at once, and
// always returns nil.
func (s *Subscriber) Close() error {
	for _, sub := range s.stop() {
		<-sub.done
	}
	s.broker.mu.Lock()
	defer s.broker.mu.Unlock()
	delete(s.broker.subscribers, s)
	return nil
}

// Abandon ends the subscriber as the death of its process would: nothing is
// drained, what is unsettled comes again at once, flagged Suspect, and counts
// towards the delivery limit. The handlers that still run may ack or nack; it has
// no effect. It is meant for tests.
func (s *Subscriber) Abandon() {
	s.stop()
	s.once.Do(func() { close(s.abandoned) })
	_ = s.Close() // never fails
}

// stop refuses new subscriptions and ends the intake of the present ones, which it
// returns.
func (s *Subscriber) stop() []*subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var stopped []*subscription
	for sub := range s.subscriptions {
		sub.cancel()
		stopped = append(stopped, sub)
	}
	return stopped
}
