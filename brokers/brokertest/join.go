package brokertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// checkJoinAmidHandler lets a subscriber join the group, and leave it again, while a handler of the
// first one runs. Meanwhile nobody must get that handler's message, and its ack must count.
func checkJoinAmidHandler(e *env) error {
	release := make(chan struct{})
	c := newCrowd(func(*message.Message) { <-release })
	if err := e.joinAndLeave(c, release); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if times := c.times[c.chosen]; times != 1 {
		return fmt.Errorf("a message came %d times, though its handler ended with an ack: a subscriber had joined meanwhile", times)
	}
	return nil
}

// checkJoinAmidPoison does the same while a message is nacked again and again. The message must not
// block the group, nor be in two hands at once.
func checkJoinAmidPoison(e *env) error {
	release := make(chan struct{})
	return e.joinAndLeave(newCrowd(func(msg *message.Message) {
		select {
		case <-release:
		default:
			<-time.After(time.Millisecond) // work
			msg.Nack()
		}
	}), release)
}

// joinAndLeave ends the trouble with the chosen message by closing release.
func (e *env) joinAndLeave(c *crowd, release chan struct{}) error {
	const n = 40
	free := sync.OnceFunc(func() { close(release) })
	defer free()

	topic, group := e.partitioned(), newGroup()
	config := brokers.SubscriberConfig{Group: group, InFlight: severalInFlight, DrainTimeout: e.Within}
	first, err := e.subscribe(config, topic)
	if err != nil {
		return err
	}
	sent := newMessages(n)
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	c.apart = true
	c.consume(first)
	if err := e.soon("the first message", func() error { <-c.begun; return nil }); err != nil {
		return err
	}
	second, err := e.subscribe(config, topic)
	if err != nil {
		return fmt.Errorf("joining amid a handler: %w", err)
	}
	c.consume(second)
	<-time.After(e.Join)
	left := make(chan error, 1)
	go func() { left <- second.close() }()
	<-time.After(e.Join)
	if err := c.problems(); err != nil {
		return err
	}

	free()
	if err := <-left; err != nil {
		return fmt.Errorf("leaving amid a handler: %w", err)
	}
	if err := c.done(sent, e.Within); err != nil {
		return fmt.Errorf("after a subscriber has joined and left: %w", err)
	}
	if err := first.close(); err != nil {
		return err
	}
	if err := e.settled(group, topic); err != nil {
		return fmt.Errorf("after everything was acked, with a subscriber that joined and left: %w", err)
	}
	return c.problems()
}
