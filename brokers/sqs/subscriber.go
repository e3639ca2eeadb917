package sqs

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

// Subscriber receives the messages of one group. It is safe for concurrent use. docs/brokers.md
// describes its deliveries.
type Subscriber struct {
	broker        *Broker
	config        brokers.SubscriberConfig
	client        *sqs.Client
	subscriptions handout.Subscriptions[*subscription]
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ brokers.Receiver             = (*Subscriber)(nil)
)

func newSubscriber(b *Broker, config brokers.SubscriberConfig) *Subscriber {
	s := &Subscriber{broker: b, config: config, client: b.sqs}
	if b.options != nil {
		s.client = b.newSQS(b.options(s)...)
	}
	return s
}

// Subscribe finds the queue for a topic and the group, and returns its messages. The channel is
// unbuffered: a message counts as delivered when it is received. Errors wrap brokers.ErrClosed,
// [ErrNoQueue], [ErrDenied], [ErrGroups], or brokers.ErrUnavailable if there is no answer in time.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	q, err := s.ready(ctx, topic)
	if err != nil {
		return nil, err
	}
	if err := s.broker.read(q, s.config.Group); err != nil {
		return nil, err
	}
	messages, err := s.subscriptions.Start(pkg, newSubscription(ctx, s, topic, q))
	if err != nil {
		s.broker.unread(q)
	}
	return messages, err
}

// SubscribeInitialize creates queue, topic and subscription if that is configured, and otherwise
// checks that the queue exists. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.ready(context.Background(), topic)
	return err
}

// Receiving implements brokers.Receiver. A subscriber whose last receive failed gets nothing until
// one succeeds, although the queue may answer others.
func (s *Subscriber) Receiving() error {
	return s.subscriptions.Receiving(func(sub *subscription) (string, error) {
		return "sqs: topic " + sub.topic, sub.intake.trouble.Problem()
	})
}

func (s *Subscriber) ready(ctx context.Context, topic string) (*queue, error) {
	if err := s.subscriptions.Open(pkg); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.broker.config.ConnectTimeout)
	defer cancel()
	return s.broker.source(ctx, s.client, topic, s.config.Group)
}

// source finds a group's queue for a topic.
func (b *Broker) source(ctx context.Context, client *sqs.Client, topic, group string) (*queue, error) {
	if topic == "" {
		return nil, errNoTopicName
	}
	q, err := b.queueOf(ctx, client, b.config.queueFor(topic, group))
	if err == nil {
		err = b.know(q)
	}
	if err != nil {
		return nil, err
	}
	if arn := b.config.topicARN(topic); arn != "" && b.config.CreateQueues {
		if err := b.fanOut(ctx, client, arn, q); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// reader is the group that reads a queue, with the number of its subscriptions.
type reader struct {
	group string
	calls int
}

// read notes a queue's reader. A second group would take messages from the first.
func (b *Broker) read(q *queue, group string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.readers[q.url]
	if r.calls > 0 && r.group != group {
		return fmt.Errorf("%w: %q is read by group %q, and %q would get only the rest: give each group a queue, with queue={topic}-{group} behind an SNS topic",
			ErrGroups, q.name, r.group, group)
	}
	b.readers[q.url] = reader{group, r.calls + 1}
	return nil
}

func (b *Broker) unread(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.readers[q.url]; r.calls > 1 {
		b.readers[q.url] = reader{r.group, r.calls - 1}
	} else {
		delete(b.readers, q.url)
	}
}

// Close stops the intake. It returns when every message is settled or after
// SubscriberConfig.DrainTimeout, and running receives have ended, which takes at most Consume.Wait.
// It may be called again, and concurrently, and always returns nil: messages that cannot be settled
// are redelivered.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.broker.subscribers.Remove(s)
	return nil
}
