package brokertest

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// crowd is the handlers of several subscribers of one group. It acks everything, except one
// message.
type crowd struct {
	apart bool // no message may be in two hands at once

	// treat works on the chosen message, which is the first to arrive. That is acked afterwards,
	// unless treat nacked it.
	treat func(msg *message.Message)

	mu      sync.Mutex
	chosen  string // its UUID
	hands   map[string]int
	times   map[string]int // deliveries
	acked   map[string]bool
	errs    []error
	begun   chan struct{} // closed when the chosen message has arrived
	changed chan struct{}
	running sync.WaitGroup
}

func newCrowd(treat func(*message.Message)) *crowd {
	return &crowd{
		treat: treat,
		hands: make(map[string]int), times: make(map[string]int), acked: make(map[string]bool),
		begun: make(chan struct{}), changed: make(chan struct{}, 1),
	}
}

// consume handles what the subscription delivers until its channel is closed.
func (c *crowd) consume(s *subscription) {
	c.running.Go(func() {
		for msg := range s.messages {
			c.running.Go(func() { c.handle(msg) })
		}
	})
}

func (c *crowd) handle(msg *message.Message) {
	c.mu.Lock()
	if c.chosen == "" {
		c.chosen = msg.UUID
		close(c.begun)
	}
	chosen := msg.UUID == c.chosen
	c.times[msg.UUID]++
	if c.hands[msg.UUID]++; c.apart && c.hands[msg.UUID] > 1 {
		c.errs = append(c.errs, fmt.Errorf("message %q came again while its handler ran", msg.UUID))
	}
	c.mu.Unlock()

	if chosen {
		c.treat(msg)
	}
	c.mu.Lock()
	c.hands[msg.UUID]-- // before it can come again
	c.mu.Unlock()
	select {
	case <-msg.Nacked():
		return
	default:
	}
	msg.Ack()
	c.mu.Lock()
	c.acked[msg.UUID] = true
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// done waits until all messages were acked.
func (c *crowd) done(sent []*message.Message, within time.Duration) error {
	timeout := time.After(within)
	for {
		missing := 0
		c.mu.Lock()
		for _, msg := range sent {
			if !c.acked[msg.UUID] {
				missing++
			}
		}
		err := errors.Join(c.errs...)
		c.mu.Unlock()
		if err != nil || missing == 0 {
			return err
		}
		select {
		case <-c.changed:
		case <-timeout:
			return fmt.Errorf("%d of %d messages did not come within %s", missing, len(sent), within)
		}
	}
}

// some waits until some messages were acked.
func (c *crowd) some(n int, within time.Duration) error {
	timeout := time.After(within)
	for {
		c.mu.Lock()
		acked := len(c.acked)
		c.mu.Unlock()
		if acked >= n {
			return nil
		}
		select {
		case <-c.changed:
		case <-timeout:
			return fmt.Errorf("%d messages were acked within %s, %d must be", acked, within, n)
		}
	}
}

// deliveries returns how often each message has arrived so far.
func (c *crowd) deliveries() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.times)
}

func (c *crowd) problems() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}
