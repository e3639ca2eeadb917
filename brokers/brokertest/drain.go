package brokertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// begun subscribes with a long DrainTimeout, publishes n messages and receives one.
func (e *env) begun(config brokers.SubscriberConfig, topic string, n int) (*subscription, *message.Message, []*message.Message, error) {
	config.DrainTimeout = e.Within
	s, err := e.subscribe(config, topic)
	if err != nil {
		return nil, nil, nil, err
	}
	sent := newMessages(n)
	if err := e.publish(topic, sent...); err != nil {
		return nil, nil, nil, err
	}
	msg, err := s.next()
	return s, msg, sent, err
}

// settled expects that a new subscriber of the group gets nothing.
func (e *env) settled(group, topic string) error {
	s, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	return s.nothing()
}

func checkCloseWaitsForHandler(e *env) error {
	topic, group := e.topic(), newGroup()
	s, msg, _, err := e.begun(brokers.SubscriberConfig{Group: group}, topic, 1)
	if err != nil {
		return err
	}
	closed := make(chan error, 1)
	go func() { closed <- s.subscriber.Close() }()
	select {
	case err := <-closed:
		return fmt.Errorf("Close returned (%w) while a message was unsettled", err)
	case <-time.After(e.Quiet):
	}
	if !msg.Ack() {
		return errors.New("the message cannot be acked while Close waits: it was nacked")
	}
	if err := e.soon("Close after the ack", func() error { return <-closed }); err != nil {
		return err
	}
	if err := e.settled(group, topic); err != nil {
		return fmt.Errorf("the ack of a handler that ran during Close did not count: %w", err)
	}
	return nil
}

// checkCloseKeepsUnbegun closes a subscriber before most messages were received.
func checkCloseKeepsUnbegun(e *env) error {
	topic, group := e.topic(), newGroup()
	config := brokers.SubscriberConfig{Group: group, InFlight: e.several()}
	s, msg, sent, err := e.begun(config, topic, 3*e.several())
	if err != nil {
		return err
	}
	msg.Ack()
	<-time.After(e.Quiet) // time for the adapter to fetch more than was asked for
	if err := s.close(); err != nil {
		return err
	}
	next, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	for got := map[string]bool{msg.UUID: true}; len(got) < len(sent); {
		msg, err := next.next()
		if err != nil {
			return fmt.Errorf("%d of %d messages came, before and after Close: %w", len(got), len(sent), err)
		}
		got[msg.UUID] = true
		msg.Ack()
	}
	return nil
}

// checkCloseGivesUp never settles.
func checkCloseGivesUp(e *env) error {
	topic, group := e.topic(), newGroup()
	config := brokers.SubscriberConfig{Group: group, DrainTimeout: e.Quiet}
	s, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	sent := newMessages(1)[0]
	if err := e.publish(topic, sent); err != nil {
		return err
	}
	if _, err := s.nextOf(sent); err != nil {
		return err
	}
	started := time.Now()
	if err := s.close(); err != nil {
		return err
	}
	if waited := time.Since(started); waited < config.DrainTimeout {
		return fmt.Errorf("Close gave up after %s, DrainTimeout is %s", waited, config.DrainTimeout)
	}
	next, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	msg, err := next.nextOf(sent)
	if err != nil {
		return fmt.Errorf("a message unsettled after DrainTimeout: %w", err)
	}
	defer msg.Ack()
	d, err := deliveryOf(msg)
	if err != nil {
		return err
	}
	if !d.Suspect {
		return errors.New("a message unsettled after DrainTimeout comes again without the flag Suspect")
	}
	return nil
}

// checkAckAfterContextEnds: Watermill's router ends the Subscribe context at once
// when it is closed, with handlers still running.
func checkAckAfterContextEnds(e *env) error {
	topic, group := e.topic(), newGroup()
	subscriber, err := e.subscriber(brokers.SubscriberConfig{Group: group, DrainTimeout: e.Within})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := e.subscribeWith(ctx, subscriber, topic)
	if err != nil {
		return err
	}
	sent := newMessages(2)
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	msg, err := s.next()
	if err != nil {
		return err
	}
	cancel()
	if err := e.soon("the end of the message's context", func() error {
		<-msg.Context().Done()
		return nil
	}); err != nil {
		return err
	}
	if !msg.Ack() {
		return errors.New("the message cannot be acked after the Subscribe context has ended: it was nacked")
	}
	if err := e.soon("closing the output channel", func() error {
		for extra := range s.messages {
			extra.Nack() // may have been on its way
		}
		return nil
	}); err != nil {
		return err
	}
	if err := s.close(); err != nil {
		return err
	}
	next, err := e.subscribe(brokers.SubscriberConfig{Group: group}, topic)
	if err != nil {
		return err
	}
	other := sent[0]
	if other.UUID == msg.UUID {
		other = sent[1]
	}
	again, err := next.nextOf(other)
	if err != nil {
		return fmt.Errorf("of the message that was not received before the context ended: %w", err)
	}
	again.Ack()
	if err := next.nothing(); err != nil {
		return fmt.Errorf("the ack of a handler that ran when the Subscribe context ended did not count: %w", err)
	}
	return nil
}

// checkCloseAtOnce calls Close from many goroutines, and again.
func checkCloseAtOnce(e *env) error {
	topic := e.topic()
	s, msg, _, err := e.begun(brokers.SubscriberConfig{Group: newGroup()}, topic, 2)
	if err != nil {
		return err
	}
	var calls sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		calls.Go(func() { results <- s.subscriber.Close() })
	}
	select {
	case err := <-results:
		return fmt.Errorf("one of several calls of Close returned (%w) while a message was unsettled", err)
	case <-time.After(e.Quiet):
	}
	msg.Ack()
	if err := e.soon("Close from several goroutines", func() error {
		calls.Wait()
		return nil
	}); err != nil {
		return err
	}
	for range cap(results) {
		if err := <-results; err != nil {
			return fmt.Errorf("Close, called several times: %w", err)
		}
	}
	if err := s.close(); err != nil {
		return fmt.Errorf("the second Close: %w", err)
	}
	select {
	case extra, open := <-s.messages:
		if open {
			return fmt.Errorf("message %q came after Close", extra.UUID)
		}
	default:
		return errors.New("the output channel is open after Close")
	}
	return nil
}
