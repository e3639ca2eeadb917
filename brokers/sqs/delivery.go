package sqs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

// longestRedeliveryDelay is where the pauses between redeliveries stop growing.
const longestRedeliveryDelay = 30 * time.Second

var errNoTopicName = errors.New("sqs: the topic is empty: name a queue, its URL or an ARN")

// fate is what has become of an item.
type fate int

const (
	acked fate = iota
	nacked
	unbegun   // nobody has received it
	takenBack // by SQS, before anybody has received it
	abandoned // draining has ended before its handler
)

// lanes are the groups of a FIFO queue of which something is in hand. The first message of
// a lane is being delivered, the others wait here.
type lanes struct {
	mu      sync.Mutex
	waiting map[string][]*item
}

// join puts an item into its lane. It reports true if the lane was empty, so that the item
// is to be delivered at once.
func (l *lanes) join(it *item) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		l.waiting = make(map[string][]*item)
	}
	waiting, busy := l.waiting[it.group]
	if busy {
		l.waiting[it.group] = append(waiting, it)
	} else {
		l.waiting[it.group] = nil
	}
	return !busy
}

// next returns the item that is to be delivered after the first of a lane, nil if there is
// none. Then the lane is gone.
func (l *lanes) next(group string) *item {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.waiting[group]
	if len(waiting) == 0 {
		delete(l.waiting, group)
		return nil
	}
	l.waiting[group] = waiting[1:]
	return waiting[0]
}

// leave empties a lane.
func (l *lanes) leave(group string) []*item {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.waiting[group]
	delete(l.waiting, group)
	return waiting
}

// admit begins with what was received: one of each group at a time, in order, and
// everything that has no group.
func (s *subscription) admit(items []*item) {
	s.keeper.keep(items)
	for _, it := range items {
		switch {
		case it.group == "":
			s.deliveries.Go(func() { s.settle(it, nil) })
		case s.lanes.join(it):
			s.deliveries.Go(func() {
				for it := it; it != nil; {
					if s.settle(it, func() []*item { return s.lanes.leave(it.group) }) {
						it = s.lanes.next(it.group)
					} else {
						it = nil
					}
				}
			})
		}
	}
}

// settle delivers an item and does what follows. It reports whether the item is done with.
// If not, what waits behind it is given back as well, and none of it is begun: rest takes
// it out of the lane.
func (s *subscription) settle(it *item, rest func() []*item) bool {
	f, delay := s.deliver(it)
	if f == acked {
		left := s.keeper.drop(it)
		s.deletes.add(it)
		switch {
		case it.group == "":
			s.release(1)
		case left == 0: // its slot is free when it is deleted, see deleteAll
			s.deletes.flush()
		}
		return true
	}
	var back []*item
	if f == nacked || f == unbegun {
		back = append(back, it)
	}
	s.keeper.drop(it)
	slots := 1
	if rest != nil {
		behind := rest()
		slots += len(behind)
		for _, it := range behind {
			s.keeper.drop(it)
		}
		back = append(back, behind...)
	}
	s.release(slots)
	s.giveBack(back, delay) // of f taken back or abandoned there is no delay
	return false
}

// giveBack lets others have messages, the first after a delay, and what stands behind it
// in its group with it: SQS hands out nothing of a group while its first message is hidden.
// Where all are hidden for a time, not every server begins with the first afterwards.
// SQS counts in seconds; less than one is waited for here.
func (s *subscription) giveBack(items []*item, delay time.Duration) {
	if 0 < delay && delay < time.Second {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			delay = 0
		case <-s.ctx.Done(): // then SQS waits
		}
	}
	if len(items) == 0 {
		return
	}
	returns := make([]giveBack, len(items))
	for i, it := range items {
		returns[i].item = it
	}
	returns[0].delayed, returns[0].from = delay > 0, time.Now().Add(delay)
	s.returns.add(returns...)
}

// release frees slots. When nothing is in hand any more, nothing will fill the batches.
func (s *subscription) release(slots int) {
	if s.intake.release(slots) {
		s.deletes.flush()
		s.returns.flush()
	}
}

// deliver hands a message out and waits until it is settled. For a nack it returns the
// delay before the next delivery.
func (s *subscription) deliver(it *item) (fate, time.Duration) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	msg, facts := it.read(s.topic, s.subscriber.broker.config.Consume.Unmarshal)
	ctx = brokers.WithDelivery(ctx, msg, facts)
	msg.SetContext(ctx)
	if s.ctx.Err() != nil {
		return unbegun, 0
	}
	if !s.keeper.offer(it, cancel) {
		return takenBack, 0
	}
	select {
	case s.out <- msg:
		s.keeper.begin(it)
	case <-it.lost:
		return takenBack, 0
	case <-s.ctx.Done():
		return unbegun, 0
	}
	select {
	case <-msg.Acked():
		return acked, 0
	case <-msg.Nacked():
		return nacked, s.delay(it, brokers.GiveBackFrom(ctx))
	case <-s.gone:
		select {
		case <-msg.Acked(): // a moment ago
			return acked, 0
		default:
			return abandoned, 0
		}
	}
}

// delay is the pause before the next delivery. A handler may have replaced the message's
// context, so the give-back is read from the one that was handed out.
func (s *subscription) delay(it *item, g brokers.GiveBack) time.Duration {
	if g.After > 0 {
		return g.After
	}
	first := s.subscriber.broker.config.Consume.RedeliveryDelay
	return min(first<<min(max(it.count, 1)-1, 10), max(first, longestRedeliveryDelay))
}
