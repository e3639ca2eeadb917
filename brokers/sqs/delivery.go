package sqs

import (
	"errors"
	"time"

	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/pause"
)

// longestRedeliveryDelay is the longest pause between redeliveries.
const longestRedeliveryDelay = 30 * time.Second

var errNoTopicName = errors.New("sqs: the topic is empty: name a queue, its URL or an ARN")

// admit begins received messages: of each group only the first, and all without a group.
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

// settle delivers an item and settles it. It returns the next item of its group. If the item is
// given back, so are the items behind it, and none of them begins.
func (s *subscription) settle(it *item) (next *item) {
	fate, delay := s.handOut(it)
	left := s.keeper.drop(it)
	if fate == handout.Acked {
		s.settling.deletes.add(it)
		switch {
		case it.group == "":
			s.release(1)
			return nil
		case left == 0: // deleteAll frees its slot
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

// giveBack gives messages back, the first after a delay, with those behind it in its group: SQS
// delivers nothing of a group while the group's first message is hidden. If all of them were hidden
// for a time, not every server would start with the first one afterwards. SQS counts in seconds;
// shorter delays are waited for here.
func (s *subscription) giveBack(items []*item, delay time.Duration) {
	if 0 < delay && delay < time.Second && pause.Sleep(s.Context(), delay) {
		delay = 0 // otherwise SQS waits
	}
	if len(items) == 0 {
		return
	}
	if delay > 0 {
		items[0].from = time.Now().Add(delay)
	}
	s.settling.returns.add(items...)
}

// release frees slots. When nothing is in hand it flushes the batches, because nothing will fill
// them.
func (s *subscription) release(slots int) {
	if s.intake.release(slots) {
		s.settling.deletes.flush()
		s.settling.returns.flush()
	}
}

// handOut hands a message out and waits for its result. For a nack it returns the delay before the
// redelivery. A message that SQS has taken back is abandoned.
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
