package official

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
)

// Subscriber gives the messages of one group. It is safe for concurrent use. The package
// documentation describes its deliveries.
type Subscriber struct {
	broker  *Broker
	config  brokers.SubscriberConfig
	options []func(*awssqs.Options) // of its clients
	client  *awssqs.Client          // gives messages back

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
	s := &Subscriber{broker: b, config: config, client: b.client}
	if b.options != nil {
		s.options = b.options(s)
		s.client = b.newClient(s.options...)
	}
	s.closing, s.stop = context.WithCancel(context.Background())
	return s
}

// Subscribe finds the queue of a topic and group and returns its messages. The channel is
// unbuffered. Errors are those of the subscriber of package sqs.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	q, err := s.source(ctx, topic)
	if err != nil {
		return nil, err
	}
	unread, err := s.broker.account.Read(q, s.config.Group)
	if err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic, q)
	in, err := sub.start(ctx)
	if err != nil {
		unread()
		sub.cancel()
		return nil, err
	}
	s.mu.Lock()
	closed := s.closing.Err() != nil
	if !closed {
		s.subscriptions.Add(1)
	}
	s.mu.Unlock()
	if closed {
		unread()
		sub.cancel()
		_ = sub.inner.Close() // never fails
		return nil, s.errClosed()
	}
	go func() {
		defer s.subscriptions.Done()
		defer unread()
		sub.run(in)
	}()
	return sub.out, nil
}

// SubscribeInitialize makes queue, topic and subscription if that is configured, and
// otherwise asks whether the queue exists. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.source(s.closing, topic)
	return err
}

func (s *Subscriber) source(ctx context.Context, topic string) (account.Queue, error) {
	if s.closing.Err() != nil {
		return account.Queue{}, s.errClosed()
	}
	ctx, cancel := context.WithTimeout(ctx, s.broker.config.ConnectTimeout)
	defer cancel()
	return s.broker.account.Source(ctx, topic, s.config.Group)
}

func (s *Subscriber) errClosed() error {
	return fmt.Errorf("sqs/official: subscriber: %w", brokers.ErrClosed)
}

// Close stops the intake and returns when every message is settled and the receives under
// way have ended, which takes Consume.Wait if nothing comes, or after
// SubscriberConfig.DrainTimeout. It may be called many times, also at once, and always
// returns nil.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	s.subscriptions.Wait()
	s.broker.subscribers.Remove(s)
	return nil
}
