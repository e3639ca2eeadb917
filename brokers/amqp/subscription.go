package amqp

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// subscription is one call of Subscribe. It outlives its sessions.
type subscription struct {
	subscriber *Subscriber
	topic      string
	queue      string
	logger     watermill.LoggerAdapter

	away atomic.Pointer[error] // why no session is; nil while one is

	ctx    context.Context // of all its messages; its end ends the intake
	cancel context.CancelFunc
	out    chan *message.Message
	done   chan struct{}
}

func newSubscription(ctx context.Context, s *Subscriber, topic, queue string) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		queue:      queue,
		out:        make(chan *message.Message),
		done:       make(chan struct{}),
	}
	sub.logger = s.config.Logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group, "queue": sub.queue})
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	return sub
}

// Close ends the intake and waits until all is settled or over. It returns nil.
func (s *subscription) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// run delivers until the context ends, then drains. Sessions that end before that are
// followed by others.
func (s *subscription) run(current *session) {
	defer close(s.done)
	defer s.cancel()
	defer close(s.out)
	for {
		err := current.consume(s.ctx)
		if err == nil {
			current.drain(s.subscriber.config.DrainTimeout)
			return
		}
		s.away.Store(&err)
		s.logger.Error("Consuming begins anew; what was unsettled comes again", err, nil)
		current.leave()
		if current = s.again(); current == nil {
			return
		}
	}
}

// again begins the next session. It returns nil if the subscription has ended before.
func (s *subscription) again() *session {
	pace := newBackOff()
	for pause(s.ctx, pace.NextBackOff()) {
		next, err := s.begin(s.ctx)
		if err == nil {
			s.away.Store(nil)
			s.logger.Info("Consuming has begun anew", nil)
			return next
		}
		if s.ctx.Err() == nil {
			s.away.Store(&err)
			s.logger.Error("The queue cannot be consumed; it is tried again", err, nil)
		}
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

// unavailable marks errors that may go away by themselves.
func unavailable(err error) error {
	if permanent(err) {
		return err
	}
	return fmt.Errorf("amqp: %w: %w", brokers.ErrUnavailable, err)
}
