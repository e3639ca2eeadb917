package memory

import (
	"context"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
)

// subscription is one call of Subscribe.
type subscription struct {
	*handout.Desk

	topic *topic
	group *group
}

func newSubscription(ctx context.Context, s *Subscriber, t *topic) *subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	return &subscription{
		Desk:  handout.New(ctx, s.config, watermill.LogFields{"topic": t.name}),
		topic: t,
		group: t.join(s.config.Group),
	}
}

// Run delivers until the intake ends, then drains.
func (s *subscription) Run() {
	defer s.Finish()
	defer context.AfterFunc(s.Context(), s.group.wakeAll)()
	s.Serve(func() {
		var unsettled sync.WaitGroup
		defer unsettled.Wait()
		for s.Take(nil) {
			it := s.next()
			if it == nil {
				return
			}
			h := s.handOut(it)
			if h == nil {
				return
			}
			unsettled.Go(func() {
				defer s.Put()
				s.settle(it, h)
			})
		}
	})
}

// next waits for a message. It returns nil when the intake has ended.
func (s *subscription) next() *item {
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	for s.Context().Err() == nil {
		if it := s.group.take(); it != nil {
			return it
		}
		s.group.changed.Wait()
	}
	return nil
}

// handOut waits until a consumer has received the message, which only then counts as a delivery. It
// returns nil if the intake ends first.
func (s *subscription) handOut(it *item) *handout.Handout {
	h := s.Handout(it.entry.message(), s.topic.facts(it.entry, it.deliveries+1))
	received := h.Offer()
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	if !received {
		s.group.putBack(it)
		return nil
	}
	it.deliveries++
	return h
}

// settle waits for the message's result. A message that was abandoned counts as lost by its
// consumer.
func (s *subscription) settle(it *item, h *handout.Handout) {
	fate, giveBack := h.Await()
	if fate == handout.Nacked && giveBack.After <= 0 {
		giveBack.After = s.topic.config.RedeliveryDelay
	}
	s.topic.mu.Lock()
	defer s.topic.mu.Unlock()
	switch {
	case fate == handout.Acked:
		s.topic.settle(it.entry)
	case (giveBack.Failed || fate == handout.Abandoned) && s.group.spend(it):
		s.Logger().Info("Message became a dead letter", watermill.LogFields{"message_uuid": it.entry.uuid, "deliveries": it.deliveries})
	default:
		s.group.putBackAfter(it, giveBack.After)
	}
}

func (t *topic) facts(e *entry, count int) brokers.Delivery {
	return brokers.Delivery{
		Topic:       t.name,
		NativeID:    e.id,
		Coordinates: t.name + "/" + strconv.FormatUint(e.seq, 10),
		Key:         e.key,
		Time:        e.at,
		Count:       count,
		Suspect:     count > 1,
	}
}
