package official

import (
	"context"
	"fmt"
	"sync"

	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The
// package documentation describes its deliveries.
type Subscriber struct {
	broker *Broker
	config brokers.SubscriberConfig

	closing context.Context // ended by Close
	stop    context.CancelFunc

	mu            sync.Mutex
	subscriptions sync.WaitGroup // guarded by mu against Wait
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

func newSubscriber(b *Broker, config brokers.SubscriberConfig) *Subscriber {
	s := &Subscriber{broker: b, config: config}
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

// Subscribe joins the group as one more member and returns the messages of a topic. The
// channel is unbuffered. It returns an error that wraps ErrNoTopic if the topic does
// not exist, brokers.ErrClosed or brokers.ErrUnavailable.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic)
	config := s.broker.config.adjusted(s.broker.config.consuming())
	sub.wires = lay(config)
	if s.broker.laid != nil {
		s.broker.laid(s, sub.wires)
	}
	// A subscriber of its own for each call: it tells its partitions apart from those of
	// another call for the same topic.
	inner, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers:               s.broker.config.Brokers,
		Unmarshaler:           unmarshaler{sub},
		OverwriteSaramaConfig: config,
		ConsumerGroup:         s.config.Group,
		NackResendSleep:       wmkafka.NoSleep, // the pause is made here, where it can be cut short
		Tracer:                tracer{sub, s.broker.config.Tracer},
	}, s.config.Logger)
	if err != nil {
		sub.cancel()
		return nil, fmt.Errorf("kafka/official: %w", err)
	}
	// Not the caller's context: its end would take away what handlers have in hand.
	in, err := inner.Subscribe(context.WithoutCancel(ctx), topic)
	if err != nil {
		sub.cancel()
		return nil, s.broker.config.unreachable(err)
	}
	s.mu.Lock()
	closed := s.closing.Err() != nil
	if !closed {
		s.subscriptions.Add(1)
	}
	s.mu.Unlock()
	if closed {
		sub.cancel()
		_ = inner.Close() // never fails
		return nil, fmt.Errorf("kafka/official: subscriber: %w", brokers.ErrClosed)
	}
	go func() {
		defer s.subscriptions.Done()
		sub.run(inner, in)
	}()
	return sub.out, nil
}

// SubscribeInitialize makes the topic, if the configuration allows that. Its errors are
// those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if s.closing.Err() != nil {
		return fmt.Errorf("kafka/official: subscriber: %w", brokers.ErrClosed)
	}
	err := s.broker.ensureTopic(s.closing, topic, s.broker.config.Consume.WaitForTopic)
	if s.closing.Err() != nil {
		return fmt.Errorf("kafka/official: subscriber: %w", brokers.ErrClosed)
	}
	return err
}

// Close stops the intake, waits for what is unsettled, at most
// SubscriberConfig.DrainTimeout, commits the offsets and leaves the group; for that a
// broker has five seconds more. It may be called many times, also at once, and always
// returns nil.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.subscriptions.Wait()
	s.broker.subscribers.Remove(s)
	return nil
}
