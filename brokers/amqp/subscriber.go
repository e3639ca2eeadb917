package amqp

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
	consuming     *link
	subscriptions handout.Subscriptions[*subscription]
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
	_ brokers.Receiver             = (*Subscriber)(nil)
)

// Subscribe declares the group's queue for a topic, and returns a share of its messages. The
// channel is unbuffered: a message counts as begun when it is received. Errors wrap
// brokers.ErrClosed, brokers.ErrUnavailable, [ErrDeclaredOtherwise], [ErrNotAllowed] or
// [ErrNotThere].
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	queue, err := s.queue(topic)
	if err != nil {
		return nil, err
	}
	sub, err := newSubscription(ctx, s, topic, queue)
	if err != nil {
		return nil, err
	}
	messages, err := s.subscriptions.Start(pkg, sub)
	if err != nil {
		go sub.first.leave()
	}
	return messages, err
}

// SubscribeInitialize makes Subscribe's declarations, so that messages published from now on wait
// in the queue. Its errors are those of Subscribe.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	queue, err := s.queue(topic)
	if err != nil {
		return err
	}
	_, err = s.prepare(context.Background(), topic, queue)
	return err
}

// prepare returns a connection on which everything is declared.
func (s *Subscriber) prepare(ctx context.Context, topic, queue string) (*connection, error) {
	conn, err := s.consuming.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer s.broker.impatient(conn)()
	if err := s.broker.declareQueue(conn, topic, queue); err != nil {
		return nil, unavailable(err)
	}
	return conn, nil
}

// queue returns the name of the group's queue for a topic.
func (s *Subscriber) queue(topic string) (string, error) {
	if err := s.subscriptions.Open(pkg); err != nil {
		return "", err
	}
	return s.broker.config.Topology.queue(topic, s.config.Group)
}

// Close stops the intake, gives back messages that nobody has received, and returns when the others
// are settled or after SubscriberConfig.DrainTimeout. It may be called again, and concurrently, and
// always returns nil: messages whose settlement is lost are redelivered.
func (s *Subscriber) Close() error {
	_ = s.subscriptions.Close() // never fails
	s.consuming.close()
	s.broker.subscribers.Remove(s)
	return nil
}

// Receiving implements brokers.Receiver. A subscriber whose connection or consumer has ended
// receives nothing until it has another one, although the broker may answer publishers.
func (s *Subscriber) Receiving() error {
	return s.subscriptions.Receiving(func(sub *subscription) (string, error) {
		return fmt.Sprintf("amqp: topic %s, queue %s", sub.topic, sub.queue), sub.trouble.Problem()
	})
}
