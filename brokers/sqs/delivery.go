package sqs

import (
	"errors"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/outage"
)

// longestRedeliveryDelay is where the pauses between redeliveries stop growing.
const longestRedeliveryDelay = 30 * time.Second

var errNoTopicName = errors.New("sqs: the topic is empty: name a queue, its URL or an ARN")

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
	fate, delay := s.handOut(it)
	left := s.keeper.drop(it)
	if fate == handout.Acked {
		s.settling.deletes.add(it)
		switch {
		case it.group == "":
			s.release(1)
		case left == 0: // its slot is free when it is deleted, see deleteAll
			s.settling.deletes.flush()
		}
		return true
	}
	var back []*item
	if fate == handout.Nacked || fate == handout.Unbegun {
		back = append(back, it)
	}
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
	s.giveBack(back, delay)
	return false
}

// giveBack lets others have messages, the first after a delay, and what stands behind it
// in its group with it: SQS hands out nothing of a group while its first message is hidden.
// Where all are hidden for a time, not every server begins with the first afterwards.
// SQS counts in seconds; less than one is waited for here.
func (s *subscription) giveBack(items []*item, delay time.Duration) {
	if 0 < delay && delay < time.Second && outage.Pause(s.Context(), delay) {
		delay = 0 // else SQS waits
	}
	if len(items) == 0 {
		return
	}
	if delay > 0 {
		items[0].from = time.Now().Add(delay)
	}
	s.settling.returns.add(items...)
}

// release frees slots. When nothing is in hand any more, nothing will fill the batches.
func (s *subscription) release(slots int) {
	if s.intake.release(slots) {
		s.settling.deletes.flush()
		s.settling.returns.flush()
	}
}

// handOut hands a message out and waits for what becomes of it. For a nack it returns the
// delay before the next delivery. What SQS has taken back is abandoned.
func (s *subscription) handOut(it *item) (handout.Fate, time.Duration) {
	config := &s.subscriber.broker.config.Consume
	h := s.Handout(it.read(s.topic, config.Unmarshal))
	h.Withdrawn = it.lost
	switch {
	case !s.keeper.offer(it, h.End):
		h.End(nil)
		return handout.Abandoned, 0
	case h.Offer():
		s.keeper.begin(it)
	case it.isLost():
		return handout.Abandoned, 0
	default:
		return handout.Unbegun, 0
	}
	fate, giveBack := h.Await()
	if fate != handout.Nacked {
		return fate, 0
	}
	return fate, handout.Delay(giveBack, it.count, config.RedeliveryDelay, longestRedeliveryDelay)
}
