package amqp

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/outage"
	"github.com/millpond-go/millpond/internal/pause"
)

// subscription is one call of Subscribe. It outlives its sessions.
type subscription struct {
	*handout.Desk

	subscriber *Subscriber
	topic      string
	queue      string
	first      *session
	trouble    *outage.Outage
}

func newSubscription(ctx context.Context, s *Subscriber, topic, queue string) (*subscription, error) {
	sub := &subscription{
		Desk:       handout.New(ctx, s.config, watermill.LogFields{"topic": topic, "queue": queue}),
		subscriber: s, topic: topic, queue: queue,
	}
	sub.trouble = outage.New(sub.Logger(), "Consuming")
	var err error
	if sub.first, err = sub.begin(ctx); err != nil {
		sub.Stop()
	}
	return sub, err
}

// Run delivers until the intake ends, then drains. If a session ends early, it opens another one.
func (s *subscription) Run() {
	defer s.Finish()
	current := s.first
	s.Serve(func() {
		for ; current != nil; current = s.again() {
			err := current.consume()
			if err == nil {
				current.drain()
				return
			}
			s.trouble.Failed(err)
			current.leave()
		}
	})
	if current != nil {
		current.leave()
	}
}

// again begins the next session. It returns nil if the subscription ends first.
func (s *subscription) again() *session {
	for after := outage.Pace().NextBackOff(); pause.Sleep(s.Context(), after); {
		next, err := s.begin(s.Context())
		if err == nil {
			s.trouble.Over()
			return next
		}
		after = s.trouble.Failed(err)
	}
	return nil
}

// begin opens a session, within the timeout for connecting.
func (s *subscription) begin(ctx context.Context) (*session, error) {
	b := s.subscriber.broker
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
	defer cancel()
	conn, err := s.subscriber.prepare(ctx, s.topic, s.queue)
	if err != nil {
		return nil, err
	}
	defer b.impatient(conn)()
	next, err := newSession(s, conn)
	if err != nil {
		return nil, unavailable(explainDeclaration("queue "+s.queue, err))
	}
	return next, nil
}

// unavailable marks errors that may be temporary.
func unavailable(err error) error {
	if permanent(err) {
		return err
	}
	return fmt.Errorf("amqp: %w: %w", brokers.ErrUnavailable, err)
}
