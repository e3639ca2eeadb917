package brokertest

import (
	"fmt"

	"github.com/millpond-go/millpond/brokers"
)

// checkDeadConsumer plays the crash between commit and ack: the handler's work is done, and the
// broker does not know.
func checkDeadConsumer(e *env) error {
	if e.Kill == nil {
		e.notCheckedf("consumers that die: the harness has no Kill")
		return nil
	}
	topic, group := e.topic(), newGroup()
	config := brokers.SubscriberConfig{Group: group, InFlight: e.several()}
	dying, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	sent := newMessages(e.several())
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	if _, err := dying.all(sent); err != nil {
		return err
	}
	e.Kill(e.t, e.broker, dying.subscriber)

	next, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	again, err := next.all(sent)
	if err != nil {
		return fmt.Errorf("after the death: %w", err)
	}
	for _, msg := range again {
		d, err := deliveryOf(msg)
		if err != nil {
			return err
		}
		if !d.Suspect {
			return fmt.Errorf("a message that a dead consumer had is not flagged Suspect: %+v", d)
		}
		if e.caps.DeliveryCount && d.Count != 2 {
			return fmt.Errorf("Delivery.Count is %d after one consumer died with the message", d.Count)
		}
		msg.Ack()
	}
	return nil
}

// checkLateAck lets a dead consumer's handler ack when another consumer already has the message.
func checkLateAck(e *env) error {
	if e.Kill == nil {
		e.notCheckedf("late acks: the harness has no Kill")
		return nil
	}
	topic, group := e.topic(), newGroup()
	dying, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	sent := newMessages(1)[0]
	if err := e.publish(topic, sent); err != nil {
		return err
	}
	late, err := dying.nextOf(sent)
	if err != nil {
		return err
	}
	e.Kill(e.t, e.broker, dying.subscriber)

	next, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	msg, err := next.nextOf(sent)
	if err != nil {
		return fmt.Errorf("after the death: %w", err)
	}
	late.Ack()
	if err := next.nothing(); err != nil {
		return fmt.Errorf("after the late ack, with the message in flight: %w", err)
	}
	msg.Nack()
	if msg, err = next.nextOf(sent); err != nil {
		return fmt.Errorf("a late ack settled the delivery of another consumer: %w", err)
	}
	msg.Ack()
	return nil
}
