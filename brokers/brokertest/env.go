package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// env is what one check works with: its own broker, and everything opened on it, which is closed at
// the end.
type env struct {
	Harness
	t       testing.TB // for the harness and the log; checks fail by returning an error
	broker  brokers.Broker
	caps    brokers.Capabilities
	cleanup []func()
}

func newEnv(t testing.TB, h Harness) *env {
	e := &env{Harness: h, t: t}
	e.use(h.Open(t))
	return e
}

// use makes b the broker of the check.
func (e *env) use(b brokers.Broker) {
	e.broker, e.caps = b, b.Capabilities()
	e.onClose("broker", b.Close)
}

func (e *env) onClose(what string, closeIt func() error) {
	e.cleanup = append(e.cleanup, func() {
		if err := e.soon("closing the "+what, closeIt); err != nil {
			e.t.Logf("brokertest: at the end of the check: %v", err)
		}
	})
}

func (e *env) close() {
	for _, f := range slices.Backward(e.cleanup) {
		f()
	}
}

// notCheckedf logs that a check, or part of it, is left out.
func (e *env) notCheckedf(format string, args ...any) {
	e.t.Helper()
	e.t.Logf("brokertest: not checked: "+format, args...)
}

// soon runs f, and returns an error if f has not returned in time.
func (e *env) soon(what string, f func() error) error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	select {
	case err := <-result:
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	case <-time.After(e.Within):
		return fmt.Errorf("%s takes longer than %s", what, e.Within)
	}
}

func (e *env) topic() string { return e.Topic(e.t, e.broker) }

func (e *env) partitioned() string { return e.Partitioned(e.t, e.broker) }

// several is how many deliveries of one ordering unit a check may expect to have in hand at a time.
func (e *env) several() int {
	if e.Serial {
		return 1
	}
	return severalInFlight
}

func newGroup() string { return "brokertest-" + watermill.NewUUID() }

// newMessages returns n messages with payloads "0", "1", and so on.
func newMessages(n int) []*message.Message {
	messages := make([]*message.Message, 0, n)
	for i := range n {
		messages = append(messages, message.NewMessage(watermill.NewUUID(), fmt.Appendf(nil, "%d", i)))
	}
	return messages
}

func (e *env) publisher() (message.Publisher, error) {
	p, err := e.broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return nil, fmt.Errorf("opening a publisher: %w", err)
	}
	e.onClose("publisher", p.Close)
	return p, nil
}

func (e *env) publish(topic string, messages ...*message.Message) error {
	p, err := e.publisher()
	if err != nil {
		return err
	}
	return e.soon("publishing", func() error { return p.Publish(topic, messages...) })
}

// subscriber opens a subscriber. If config has no DrainTimeout, it gets a short one.
func (e *env) subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	if config.DrainTimeout == 0 {
		config.DrainTimeout = e.Quiet
	}
	s, err := e.broker.Subscriber(config)
	if err != nil {
		return nil, fmt.Errorf("opening a subscriber: %w", err)
	}
	e.onClose("subscriber", s.Close)
	return s, nil
}

// subscription is one Subscribe call and its subscriber.
type subscription struct {
	e          *env
	subscriber message.Subscriber
	messages   <-chan *message.Message
}

func (e *env) subscribe(config brokers.SubscriberConfig, topic string) (*subscription, error) {
	s, err := e.subscriber(config)
	if err != nil {
		return nil, err
	}
	return e.subscribeWith(context.Background(), s, topic)
}

// published subscribes a new group to a new topic, and publishes messages to that.
func (e *env) published(messages ...*message.Message) (*subscription, string, error) {
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err == nil {
		err = e.publish(topic, messages...)
	}
	return s, topic, err
}

func (e *env) subscribeWith(ctx context.Context, s message.Subscriber, topic string) (*subscription, error) {
	if initializer, ok := s.(message.SubscribeInitializer); ok {
		if err := initializer.SubscribeInitialize(topic); err != nil {
			return nil, fmt.Errorf("initializing the subscription: %w", err)
		}
	}
	messages, err := s.Subscribe(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribing: %w", err)
	}
	return &subscription{e: e, subscriber: s, messages: messages}, nil
}

var errChannelClosed = errors.New("the output channel is closed")

// next receives a message.
func (s *subscription) next() (*message.Message, error) {
	select {
	case msg, ok := <-s.messages:
		if !ok {
			return nil, errChannelClosed
		}
		return msg, nil
	case <-time.After(s.e.Within):
		return nil, fmt.Errorf("no message came within %s", s.e.Within)
	}
}

// nextOf receives a message, which must be the one with this UUID.
func (s *subscription) nextOf(want *message.Message) (*message.Message, error) {
	msg, err := s.next()
	if err != nil {
		return nil, err
	}
	if msg.UUID != want.UUID {
		return nil, fmt.Errorf("message %q came instead of %q", msg.UUID, want.UUID)
	}
	return msg, nil
}

// all receives as many messages as are wanted, in any order, without settling them.
func (s *subscription) all(want []*message.Message) (map[string]*message.Message, error) {
	got := make(map[string]*message.Message, len(want))
	for range want {
		msg, err := s.next()
		if err != nil {
			return nil, fmt.Errorf("%d of %d messages came: %w", len(got), len(want), err)
		}
		if got[msg.UUID] != nil {
			return nil, fmt.Errorf("message %q came twice", msg.UUID)
		}
		got[msg.UUID] = msg
	}
	for _, msg := range want {
		if got[msg.UUID] == nil {
			return nil, fmt.Errorf("message %q did not come", msg.UUID)
		}
	}
	return got, nil
}

// nothing returns an error if a message comes.
func (s *subscription) nothing() error {
	select {
	case msg, ok := <-s.messages:
		if !ok {
			return errChannelClosed
		}
		return fmt.Errorf("message %q came (payload %.40q)", msg.UUID, msg.Payload)
	case <-time.After(s.e.Quiet):
		return nil
	}
}

func (s *subscription) close() error {
	return s.e.soon("closing the subscriber", s.subscriber.Close)
}

// deliveryOf returns the facts of a message's delivery.
func deliveryOf(msg *message.Message) (brokers.Delivery, error) {
	d, ok := brokers.DeliveryOf(msg)
	if !ok {
		return d, errors.New("the message's context carries no brokers.Delivery of the message")
	}
	return d, nil
}

var errNoGiveBack = errors.New("brokers.SetGiveBack does not work on the message")

// giveBack nacks the message.
func giveBack(msg *message.Message, g brokers.GiveBack) error {
	if !brokers.SetGiveBack(msg, g) {
		return errNoGiveBack
	}
	if !msg.Nack() {
		return errors.New("the message cannot be nacked")
	}
	return nil
}
