package brokertest

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

// checkNackComesAgain nacks without a GiveBack, as programs without millpond do.
func checkNackComesAgain(e *env) error {
	topic := e.topic()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup(), InFlight: e.several()}, topic)
	if err != nil {
		return err
	}
	sent := newMessages(e.several())
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	got, err := s.all(sent)
	if err != nil {
		return err
	}
	for _, msg := range got {
		msg.Nack()
	}
	if got, err = s.all(sent); err != nil {
		return fmt.Errorf("after the nack: %w", err)
	}
	for _, msg := range got {
		msg.Ack()
	}
	if err := s.nothing(); err != nil {
		return fmt.Errorf("after the ack: %w", err)
	}
	return nil
}

func checkNackDelay(e *env) error {
	if !e.caps.DelayedGiveBack {
		e.notCheckedf("the delay of a nack: the broker has no delayed give-back")
		return nil
	}
	sent := newMessages(1)[0]
	s, _, err := e.published(sent)
	if err != nil {
		return err
	}
	msg, err := s.nextOf(sent)
	if err != nil {
		return err
	}
	for _, failed := range []bool{false, true} {
		if !brokers.SetGiveBack(msg, brokers.GiveBack{After: e.Delay, Failed: failed}) {
			return errNoGiveBack
		}
		if failed {
			// As a middleware that forgets to restore it.
			msg.SetContext(context.Background())
		}
		nacked := time.Now()
		msg.Nack()
		if msg, err = s.nextOf(sent); err != nil {
			return fmt.Errorf("after a nack with a delay of %s: %w", e.Delay, err)
		}
		// Servers count in whole milliseconds.
		if waited := time.Since(nacked); waited < e.Delay-time.Millisecond {
			return fmt.Errorf("a message nacked with a delay of %s came again after %s (Failed, context replaced: %t)", e.Delay, waited, failed)
		}
	}
	msg.Ack()
	return nil
}

func checkRedeliveryIsFreshCopy(e *env) error {
	sent := newMessages(1)[0]
	sent.Metadata.Set("kept", "before")
	s, _, err := e.published(sent)
	if err != nil {
		return err
	}
	msg, err := s.nextOf(sent)
	if err != nil {
		return err
	}
	msg.Metadata.Set("kept", "after")
	msg.Metadata.Set("added", "by a handler")
	msg.Payload[0] = 'X'
	msg.Nack()
	if msg, err = s.nextOf(sent); err != nil {
		return fmt.Errorf("after the nack: %w", err)
	}
	if msg.Metadata.Get("kept") != "before" || msg.Metadata.Get("added") != "" || string(msg.Payload) != "0" {
		return fmt.Errorf("the edits of a handler came back: metadata %v, payload %q", msg.Metadata, msg.Payload)
	}
	msg.Ack()
	return nil
}

func checkPublishedIsCopied(e *env) error {
	sent := newMessages(1)[0]
	sent.Metadata.Set("kept", "before")
	metadata := maps.Clone(sent.Metadata)
	s, _, err := e.published(sent)
	if err != nil {
		return err
	}
	if !maps.Equal(sent.Metadata, metadata) {
		return fmt.Errorf("Publish changed the publisher's metadata to %v", sent.Metadata)
	}
	sent.Metadata.Set("kept", "after")
	sent.Payload[0] = 'X'
	msg, err := s.nextOf(sent)
	if err != nil {
		return err
	}
	if msg.Metadata.Get("kept") != "before" || string(msg.Payload) != "0" {
		return fmt.Errorf("a change after Publish was delivered: metadata %v, payload %q", msg.Metadata, msg.Payload)
	}
	msg.Ack()
	return nil
}
