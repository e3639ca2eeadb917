package brokertest

import (
	"fmt"

	"github.com/millpond-go/millpond/brokers"
)

func checkOrder(e *env) error {
	if !e.caps.Ordered {
		e.notCheckedf("order: the broker promises none")
		return nil
	}
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	sent := newMessages(100)
	publisher, err := e.publisher()
	if err != nil {
		return err
	}
	if err := publisher.Publish(topic, sent[:50]...); err != nil {
		return err
	}
	for _, msg := range sent[50:] {
		if err := publisher.Publish(topic, msg); err != nil {
			return err
		}
	}
	for i, want := range sent {
		msg, err := s.nextOf(want)
		if err != nil {
			return fmt.Errorf("message %d of %d: %w", i+1, len(sent), err)
		}
		msg.Ack()
	}
	return nil
}
