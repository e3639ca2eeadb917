package brokertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// checkInFlightLimit fills the slots, and frees one at a time.
func checkInFlightLimit(e *env) error {
	if err := e.inFlightLimit(e.topic(), 1); err != nil {
		return err
	}
	if err := e.inFlightLimit(e.partitioned(), 1); err != nil {
		return fmt.Errorf("topic with several ordering units: %w", err)
	}
	if e.Serial {
		e.notCheckedf("%d deliveries in flight of one ordering unit: it has one at a time", severalInFlight)
		return nil
	}
	return e.inFlightLimit(e.topic(), severalInFlight)
}

func (e *env) inFlightLimit(topic string, limit int) error {
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup(), InFlight: limit}, topic)
	if err != nil {
		return err
	}
	if err := e.publish(topic, newMessages(limit+2)...); err != nil {
		return err
	}
	var unsettled []*message.Message
	for len(unsettled) < limit {
		msg, err := s.next()
		if err != nil {
			return fmt.Errorf("with %d of %d slots in use: %w", len(unsettled), limit, err)
		}
		unsettled = append(unsettled, msg)
	}
	if err := s.nothing(); err != nil {
		return fmt.Errorf("with all %d slots in use: %w", limit, err)
	}
	for range 2 {
		unsettled[0].Ack()
		msg, err := s.next()
		if err != nil {
			return fmt.Errorf("after one of %d slots became free: %w", limit, err)
		}
		unsettled = append(unsettled[1:], msg)
	}
	for _, msg := range unsettled {
		msg.Ack()
	}
	return nil
}

// checkInFlightUnderLoad settles concurrently, with nacks in between.
func checkInFlightUnderLoad(e *env) error {
	const limit, n = severalInFlight, 80
	topic := e.partitioned()
	s, err := e.subscribe(brokers.SubscriberConfig{Group: newGroup(), InFlight: limit}, topic)
	if err != nil {
		return err
	}
	sent := newMessages(n)
	if err := e.publish(topic, sent...); err != nil {
		return err
	}
	var (
		running, most atomic.Int32
		handlers      sync.WaitGroup
		nacked        = make(map[string]bool)
		acked         = make(map[string]bool)
	)
	defer handlers.Wait()
	for len(acked) < n {
		msg, err := s.next()
		if err != nil {
			return fmt.Errorf("%d of %d messages are done: %w", len(acked), n, err)
		}
		nack := len(acked)%5 == 0 && !nacked[msg.UUID]
		if nack {
			nacked[msg.UUID] = true
		} else {
			acked[msg.UUID] = true
		}
		if now := running.Add(1); now > most.Load() {
			most.Store(now) // only this goroutine stores
		}
		handlers.Go(func() {
			<-time.After(time.Millisecond) // work
			running.Add(-1)
			if nack {
				msg.Nack()
			} else {
				msg.Ack()
			}
		})
	}
	if most.Load() > limit {
		return fmt.Errorf("%d messages were in flight, the limit is %d", most.Load(), limit)
	}
	return nil
}
