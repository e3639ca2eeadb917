package brokertest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

// clockSlack is how far the server's clock may be from ours.
const clockSlack = 5 * time.Minute

func checkFactsOfDelivery(e *env) error {
	published := time.Now()
	s, topic, err := e.published(newMessages(1)...)
	if err != nil {
		return err
	}
	msg, err := s.next()
	if err != nil {
		return err
	}
	defer msg.Ack()
	d, err := deliveryOf(msg)
	if err != nil {
		return err
	}

	if d.Topic != topic {
		err = errors.Join(err, fmt.Errorf("Delivery.Topic is %q, subscribed was %q", d.Topic, topic))
	}
	if d.Undecodable != nil {
		err = errors.Join(err, fmt.Errorf("Delivery.Undecodable is %w for a good message", d.Undecodable))
	}
	if e.caps.NativeID != (d.NativeID != "") {
		err = errors.Join(err, fmt.Errorf("Delivery.NativeID is %q, Capabilities.NativeID is %t", d.NativeID, e.caps.NativeID))
	}
	if e.caps.Coordinates != (d.Coordinates != "") {
		err = errors.Join(err, fmt.Errorf("Delivery.Coordinates are %q, Capabilities.Coordinates is %t", d.Coordinates, e.caps.Coordinates))
	}
	if e.caps.DeliveryCount && d.Count != 1 {
		err = errors.Join(err, fmt.Errorf("Delivery.Count is %d at first", d.Count))
	}
	if e.caps.Time && d.Time.Sub(published).Abs() > clockSlack {
		err = errors.Join(err, fmt.Errorf("Delivery.Time is %s, published was at %s", d.Time, published))
	}
	if !e.caps.Time && !d.Time.IsZero() {
		err = errors.Join(err, errors.New("Delivery.Time is set, Capabilities.Time is false"))
	}
	if g := brokers.GiveBackFrom(msg.Context()); g != (brokers.GiveBack{}) {
		err = errors.Join(err, fmt.Errorf("a new delivery carries the give-back %+v", g))
	}
	return err
}

// checkFactsOfKey publishes a message with a key, as far as the broker has keys.
func checkFactsOfKey(e *env) error {
	if e.caps.Key && e.KeyMetadata == "" {
		return errors.New("Capabilities.Key is true, and Harness.KeyMetadata does not say how a key is published")
	}
	const key = "customer-1"
	sent := newMessages(1)[0]
	sent.Metadata.Set(cmp.Or(e.KeyMetadata, "customer"), key)
	s, _, err := e.published(sent)
	if err != nil {
		return err
	}
	msg, err := s.next()
	if err != nil {
		return err
	}
	defer msg.Ack()
	d, err := deliveryOf(msg)
	switch {
	case err != nil:
		return err
	case e.caps.Key && string(d.Key) != key:
		return fmt.Errorf("Delivery.Key is %q, published was %q, Capabilities.Key is true", d.Key, key)
	case !e.caps.Key && d.Key != nil:
		return fmt.Errorf("Delivery.Key is %q, Capabilities.Key is false", d.Key)
	}
	return nil
}

func checkFactsOfRedelivery(e *env) error {
	sent := newMessages(1)[0]
	sent.Metadata.Set("name", "value")
	if e.KeyMetadata != "" {
		sent.Metadata.Set(e.KeyMetadata, "customer-1")
	}
	s, _, err := e.published(sent)
	if err != nil {
		return err
	}
	msg, err := s.nextOf(sent)
	if err != nil {
		return err
	}
	first, err := deliveryOf(msg)
	if err != nil {
		return err
	}
	arrived := msg.Copy() // which need not have the key's metadata any more
	for count := 2; count <= 3; count++ {
		if err := giveBack(msg, brokers.GiveBack{Failed: count == 2}); err != nil {
			return err
		}
		if msg, err = s.nextOf(sent); err != nil {
			return fmt.Errorf("after nack %d: %w", count-1, err)
		}
		if !msg.Equals(arrived) {
			return fmt.Errorf("delivery %d is another message: metadata %v, payload %q", count, msg.Metadata, msg.Payload)
		}
		d, err := deliveryOf(msg)
		if err != nil {
			return err
		}
		switch {
		case d.Topic != first.Topic || d.NativeID != first.NativeID || d.Coordinates != first.Coordinates ||
			!d.Time.Equal(first.Time) || !bytes.Equal(d.Key, first.Key):
			return fmt.Errorf("delivery %d has other facts: %+v, before %+v", count, d, first)
		case !d.Suspect:
			return fmt.Errorf("delivery %d is not flagged Suspect", count)
		case e.caps.DeliveryCount && d.Count != count:
			return fmt.Errorf("Delivery.Count is %d at delivery %d", d.Count, count)
		}
		if g := brokers.GiveBackFrom(msg.Context()); g != (brokers.GiveBack{}) {
			return fmt.Errorf("delivery %d carries the give-back %+v of the one before", count, g)
		}
	}
	msg.Ack()
	return nil
}

func checkFactsTellMessagesApart(e *env) error {
	if !e.caps.NativeID && !e.caps.Coordinates {
		e.notCheckedf("identity of messages: the broker has neither native ids nor coordinates")
		return nil
	}
	const n = 20
	s, _, err := e.published(newMessages(n)...)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for range n {
		msg, err := s.next()
		if err != nil {
			return err
		}
		d, err := deliveryOf(msg)
		if err != nil {
			return err
		}
		if e.caps.NativeID {
			if seen["id "+d.NativeID] {
				return fmt.Errorf("two messages have the NativeID %q", d.NativeID)
			}
			seen["id "+d.NativeID] = true
		}
		if e.caps.Coordinates {
			if seen["at "+d.Coordinates] {
				return fmt.Errorf("two messages have the Coordinates %q", d.Coordinates)
			}
			seen["at "+d.Coordinates] = true
		}
		msg.Ack()
	}
	return nil
}

// checkSuspicionEnds: after some time without trouble a subscriber's new messages, which are first
// deliveries, are no longer suspect. Looking up each would cost a round trip.
func checkSuspicionEnds(e *env) error {
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup()}, topic)
	if err != nil {
		return err
	}
	deadline := time.Now().Add(e.Within)
	for {
		sent := newMessages(1)[0]
		if err := e.publish(topic, sent); err != nil {
			return err
		}
		msg, err := s.nextOf(sent)
		if err != nil {
			return err
		}
		d, err := deliveryOf(msg)
		if err != nil {
			return err
		}
		msg.Ack()
		switch {
		case !d.Suspect:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("new messages are still flagged Suspect after %s without trouble", e.Within)
		}
		<-time.After(e.Quiet / 10)
	}
}

type contextKey struct{}

func checkSubscribeContext(e *env) error {
	topic := e.topic()
	subscriber, err := e.subscriber(brokers.SubscriberConfig{Group: newGroup()})
	if err != nil {
		return err
	}
	s, err := e.subscribeWith(context.WithValue(context.Background(), contextKey{}, "value"), subscriber, topic)
	if err != nil {
		return err
	}
	if err := e.publish(topic, newMessages(1)...); err != nil {
		return err
	}
	msg, err := s.next()
	if err != nil {
		return err
	}
	ctx := msg.Context()
	if ctx.Value(contextKey{}) != "value" {
		return errors.New("the message's context lacks the values of the Subscribe context")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("the context of an unsettled message has ended: %w", context.Cause(ctx))
	}
	msg.Ack()
	return e.soon("the end of the context after the ack", func() error {
		<-ctx.Done()
		return nil
	})
}
