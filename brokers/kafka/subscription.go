package kafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
)

// restartPause is the pause before the group is joined again after a session that could not go on.
// A topic that was created again takes about as long to settle.
const restartPause = time.Second

// subscription is one call of Subscribe. It outlives its sessions.
type subscription struct {
	*handout.Desk

	subscriber *Subscriber
	topic      string
	first      *session
	membership atomic.Pointer[membership] // of the current session; nil between two sessions
	trouble    *outage.Outage
}

func newSubscription(ctx context.Context, s *Subscriber, topic string, id kadm.TopicID) (*subscription, error) {
	sub := &subscription{Desk: handout.New(ctx, s.config, watermill.LogFields{"topic": topic}), subscriber: s, topic: topic}
	sub.trouble = outage.New(sub.Logger(), "Consuming")
	var err error
	if sub.first, err = newSession(sub, id); err != nil {
		sub.Stop()
	}
	return sub, err
}

func (s *subscription) config() *Consume { return &s.subscriber.broker.config.Consume }

// Run delivers until the intake ends, then drains.
func (s *subscription) Run() {
	defer s.Finish()
	for current := s.first; current != nil; current = s.again() {
		err := current.run(s.Context())
		if err == nil {
			current.end(s.subscriber.config.DrainTimeout)
			return
		}
		s.trouble.Failed(err)
		s.membership.Store(nil)
		current.forget()
		current.end(leaveAtOnce)
	}
}

// again opens the next session. It returns nil if the subscription ends first.
func (s *subscription) again() *session {
	for pause.Sleep(s.Context(), restartPause) {
		id, err := s.subscriber.broker.ensureTopic(s.Context(), s.topic, 0)
		if err == nil {
			var next *session
			if next, err = newSession(s, id); err == nil {
				s.trouble.Over()
				return next
			}
		}
		s.trouble.Failed(err)
	}
	return nil
}

// receiving returns why no messages come, or nil.
func (s *subscription) receiving() error {
	if m := s.membership.Load(); m != nil {
		return m.problem()
	}
	return s.trouble.Problem()
}
