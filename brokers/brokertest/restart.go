package brokertest

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// checkRestart ends the server amid a handler. What was published is delivered, what is
// published afterwards as well, by the same publisher to the same subscriber.
func checkRestart(e *env) error {
	if e.OpenRestartable == nil {
		e.notCheckedf("a restart of the server: the harness has no OpenRestartable")
		return nil
	}
	const n = 20
	broker, restart := e.OpenRestartable(e.t)
	e.use(broker)
	topic, group := e.topic(), newGroup()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: group, InFlight: severalInFlight, DrainTimeout: e.Within}, topic)
	if err != nil {
		return err
	}
	publisher, err := e.publisher()
	if err != nil {
		return err
	}
	sent := newMessages(2 * n)
	if err := e.soon("publishing", func() error { return publisher.Publish(topic, sent[:n]...) }); err != nil {
		return err
	}
	release := make(chan struct{})
	c := newCrowd(func(*message.Message) { <-release })
	c.consume(s)
	if err := e.soon("the first message", func() error { <-c.begun; return nil }); err != nil {
		close(release)
		return err
	}
	restart()
	close(release)
	if err := e.untilPublished(publisher, topic, sent[n:]); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	within := 3 * e.Within // reconnecting has its pauses
	if err := c.done(sent, within); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	if err := s.close(); err != nil {
		return fmt.Errorf("after the restart: %w", err)
	}
	// What was in flight when the server ended may come again later than all the rest.
	for range 3 {
		if err = e.settled(group, topic); err == nil {
			return nil
		}
		if s, err = e.subscribe(brokers.SubscriberConfig{Group: group, DrainTimeout: e.Within}, topic); err != nil {
			return err
		}
		c.consume(s)
		<-time.After(e.Quiet)
		if err := s.close(); err != nil {
			return err
		}
	}
	return fmt.Errorf("after the restart everything was acked, again and again: %w", err)
}

// untilPublished publishes again what may not have been taken, as a program has to.
func (e *env) untilPublished(p message.Publisher, topic string, messages []*message.Message) error {
	deadline := time.Now().Add(3 * e.Within)
	for {
		err := p.Publish(topic, messages...)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		<-time.After(e.Quiet)
	}
}
