package brokertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/brokers"
)

func checkGroupRequired(e *env) error {
	s, err := e.broker.Subscriber(brokers.SubscriberConfig{})
	if err == nil {
		e.onClose("subscriber", s.Close)
		return errors.New("a subscriber without a Group was opened")
	}
	return nil
}

func checkPublisherClosed(e *env) error {
	topic := e.topic()
	p, err := e.publisher()
	if err != nil {
		return err
	}
	for _, which := range []string{"first", "second"} {
		if err := e.soon("the "+which+" Close of a publisher", p.Close); err != nil {
			return err
		}
	}
	err = e.soon("publishing", func() error { return p.Publish(topic, newMessages(1)...) })
	if !errors.Is(err, brokers.ErrClosed) {
		return fmt.Errorf("a closed publisher's Publish returned %v, want an error that wraps %q", err, brokers.ErrClosed)
	}
	return nil
}

func checkSubscriberClosed(e *env) error {
	topic := e.topic()
	s, err := e.subscriber(brokers.SubscriberConfig{Group: newGroup()})
	if err != nil {
		return err
	}
	if err := e.soon("closing a subscriber that never subscribed", s.Close); err != nil {
		return err
	}
	if _, err = s.Subscribe(context.Background(), topic); !errors.Is(err, brokers.ErrClosed) {
		return fmt.Errorf("a closed subscriber's Subscribe returned %v, want an error that wraps %q", err, brokers.ErrClosed)
	}
	return nil
}
