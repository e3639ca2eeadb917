package kafka

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// restartPause is the pause before the group is joined again after a session that
// could not go on. A topic that was made again takes about as long to settle.
const restartPause = time.Second

// subscription is one call of Subscribe. It outlives its sessions.
type subscription struct {
	subscriber *Subscriber
	topic      string
	logger     watermill.LoggerAdapter

	membership atomic.Pointer[membership] // of the session; nil between two

	ctx    context.Context // of all its messages; its end ends the intake
	cancel context.CancelFunc
	out    chan *message.Message
	slots  chan struct{} // SubscriberConfig.InFlight places
	done   chan struct{}
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		logger:     s.config.Logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group}),
		out:        make(chan *message.Message),
		slots:      make(chan struct{}, s.config.InFlight),
		done:       make(chan struct{}),
	}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	return sub
}

// Close ends the intake and waits until all is settled or over. It returns nil.
func (s *subscription) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// run delivers until the context ends, then drains.
func (s *subscription) run(first *session) {
	defer close(s.done)
	defer s.cancel()
	defer close(s.out)
	current := first
	for {
		err := current.run(s.ctx)
		if err == nil {
			current.end(s.subscriber.config.DrainTimeout)
			return
		}
		s.membership.Store(nil)
		s.logger.Error("Consuming begins anew", err, nil)
		current.forget()
		current.end(leaveAtOnce)
		if current = s.again(); current == nil {
			return
		}
	}
}

// again opens the next session. It returns nil if the subscription has ended before.
func (s *subscription) again() *session {
	for {
		select {
		case <-time.After(restartPause):
		case <-s.ctx.Done():
			return nil
		}
		id, err := s.subscriber.broker.ensureTopic(s.ctx, s.topic, 0)
		if err == nil {
			var next *session
			if next, err = newSession(s, id); err == nil {
				return next
			}
		}
		s.logger.Error("The topic cannot be consumed; it is tried again", err, nil)
	}
}
