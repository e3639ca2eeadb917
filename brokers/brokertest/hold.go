package brokertest

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// checkHold keeps a delivery unsettled for long, as an inbox does that finds the message in flight
// elsewhere or its store down. That must cost nothing: no second delivery, no count, and nothing
// for messages in other slots.
func checkHold(e *env) error {
	topic, group := e.topic(), newGroup()
	config := brokers.SubscriberConfig{Group: group, InFlight: severalInFlight}
	s, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	other, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	sent := newMessages(1)[0]
	if err := e.publish(topic, sent); err != nil {
		return err
	}
	held, holder, err := e.eitherOf(s, other)
	if err != nil {
		return err
	}
	until := time.After(e.Hold)
	if !e.Serial {
		if err := e.passes(topic, s, other); err != nil {
			return fmt.Errorf("beside a held delivery: %w", err)
		}
	}
	for waiting := true; waiting; {
		select {
		case msg := <-s.messages:
			return fmt.Errorf("message %q came while it was held, after less than %s", uuidOf(msg), e.Hold)
		case msg := <-other.messages:
			return fmt.Errorf("message %q came to another subscriber while it was held, after less than %s", uuidOf(msg), e.Hold)
		case <-held.Context().Done():
			return fmt.Errorf("the context of a held delivery ended after less than %s", e.Hold)
		case <-until:
			waiting = false
		}
	}
	if err := giveBack(held, brokers.GiveBack{}); err != nil {
		return err
	}
	msg, _, err := e.eitherOf(s, other)
	if err != nil {
		return fmt.Errorf("after a held delivery was given back: %w", err)
	}
	d, err := deliveryOf(msg)
	if err != nil {
		return err
	}
	if e.caps.DeliveryCount && d.Count != 2 {
		return fmt.Errorf("Delivery.Count is %d after one delivery that was held", d.Count)
	}
	msg.Ack()
	return holder.nothing()
}

func uuidOf(msg *message.Message) string {
	if msg == nil {
		return "none: the output channel is closed"
	}
	return msg.UUID
}

// eitherOf receives a message from one of two subscriptions.
func (e *env) eitherOf(a, b *subscription) (*message.Message, *subscription, error) {
	var msg *message.Message
	from := a
	select {
	case msg = <-a.messages:
	case msg = <-b.messages:
		from = b
	case <-time.After(e.Within):
		return nil, nil, fmt.Errorf("no message came within %s", e.Within)
	}
	if msg == nil {
		return nil, nil, errChannelClosed
	}
	return msg, from, nil
}

// passes publishes messages and acks them.
func (e *env) passes(topic string, a, b *subscription) error {
	sent := newMessages(severalInFlight)
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	left := make(map[string]bool)
	for _, msg := range sent {
		left[msg.UUID] = true
	}
	for len(left) > 0 {
		msg, _, err := e.eitherOf(a, b)
		if err != nil {
			return fmt.Errorf("%d of %d messages are missing: %w", len(left), len(sent), err)
		}
		if !left[msg.UUID] {
			return fmt.Errorf("message %q came, which is held or acked", msg.UUID)
		}
		delete(left, msg.UUID)
		msg.Ack()
	}
	return nil
}
