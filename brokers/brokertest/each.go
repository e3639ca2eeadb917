package brokertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// checkPublishEach: a message that is refused says nothing about those before and behind it.
func checkPublishEach(e *env) error {
	opened, err := e.publisher()
	if err != nil {
		return err
	}
	p, ok := opened.(brokers.EachPublisher)
	if !ok {
		e.notCheckedf("PublishEach: a %T has none", opened)
		return nil
	}
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	good := newMessages(2)
	var bad *message.Message
	if e.TooLarge > 0 {
		bad = message.NewMessage(watermill.NewUUID(), bytes.Repeat([]byte("x"), e.TooLarge))
	}
	errs, err := e.publishEach(p, topic, good[0], bad, good[1])
	switch {
	case err != nil:
		return err
	case errs[0] != nil || errs[2] != nil:
		return fmt.Errorf("messages beside one that is refused: %w", errors.Join(errs...))
	case errs[1] == nil:
		return errors.New("PublishEach has no error for what is refused")
	case e.TooLarge > 0 && !errors.Is(errs[1], brokers.ErrTooLarge):
		return fmt.Errorf("a message of %d bytes: %w, want an error that wraps %q", e.TooLarge, errs[1], brokers.ErrTooLarge)
	}
	want := map[string]bool{good[0].UUID: true, good[1].UUID: true}
	for range good {
		msg, err := s.next()
		if err != nil {
			return fmt.Errorf("beside a message that was refused: %w", err)
		}
		if !want[msg.UUID] {
			return fmt.Errorf("message %s came, which was not taken or had come before", msg.UUID)
		}
		delete(want, msg.UUID)
		msg.Ack()
	}
	if err := e.soon("closing the publisher", p.Close); err != nil {
		return err
	}
	errs, err = e.publishEach(p, topic, newMessages(1)...)
	if err == nil && !errors.Is(errs[0], brokers.ErrClosed) {
		err = fmt.Errorf("a closed publisher's PublishEach returned %w, want an error that wraps %q", errs[0], brokers.ErrClosed)
	}
	return err
}

func (e *env) publishEach(p brokers.EachPublisher, topic string, messages ...*message.Message) (errs []error, err error) {
	err = e.soon("PublishEach", func() error {
		errs = p.PublishEach(context.Background(), topic, messages...)
		if len(errs) != len(messages) {
			return fmt.Errorf("%d answers for %d messages", len(errs), len(messages))
		}
		return nil
	})
	return errs, err
}
