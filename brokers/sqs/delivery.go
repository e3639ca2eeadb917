package sqs

import (
	"errors"
	"time"

	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/pause"
)

// longestRedeliveryDelay is where the pauses between redeliveries stop growing.
const longestRedeliveryDelay = 30 * time.Second

var errNoTopicName = errors.New("sqs: the topic is empty: name a queue, its URL or an ARN")

// admit begins with what was received: one of each group at a time, in order, and
// everything that has no group.
func (s *subscription) admit(items []*item) {
	s.keeper.keep(items)
	for _, it := range items {
		if it.group == "" || s.lanes.Join(it.group, it) {
			s.deliveries.Go(func() {
				for it := it; it != nil; {
					it = s.settle(it)
				}
			})
		}
	}
}

// settle delivers an item and does what follows. It returns the next of its group. If the
// item is not done with, what waits behind it is given back as well, and none of it is
// begun.
func (s *subscription) settle(it *item) (next *item) {
	fate, delay := s.handOut(it)
	left := s.keeper.drop(it)
	if fate == handout.Acked {
		s.settling.deletes.add(it)
		switch {
		case it.group == "":
			s.release(1)
			return nil
		case left == 0: // its slot is free when it is deleted, see deleteAll
			s.settling.deletes.flush()
		}
		next, _ = s.lanes.Next(it.group)
		return next
	}
	var back []*item
	if fate == handout.Nacked || fate == handout.Unbegun {
		back = append(back, it)
	}
	behind := s.lanes.Leave(it.group)
	for _, it := range behind {
		s.keeper.drop(it)
	}
	s.release(1 + len(behind))
	s.giveBack(append(back, behind...), delay)
	return nil
}

// giveBack lets others have messages, the first after a delay, and what stands behind it
// in its group with it: SQS hands out nothing of a group while its first message is hidden.
// Where all are hidden for a time, not every server begins with the first afterwards.
// SQS counts in seconds; less than one is waited for here.
func (s *subscription) giveBack(items []*item, delay time.Duration) {
	if 0 < delay && delay < time.Second && pause.Sleep(s.Context(), delay) {
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
