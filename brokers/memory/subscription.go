package memory

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// subscription is one call of Subscribe.
type subscription struct {
	topic     *topic
	group     *group
	inFlight  int
	drainFor  time.Duration
	abandoned <-chan struct{}
	logger    watermill.LoggerAdapter

	ctx      context.Context // of all its messages; its end ends the intake
	cancel   context.CancelFunc
	out      chan *message.Message
	wake     chan struct{} // something was settled or may be ready
	watchers sync.WaitGroup
	done     chan struct{}

	unsettled map[*delivery]struct{} // guarded by topic.mu
}

func newSubscription(ctx context.Context, s *Subscriber, t *topic) *subscription {
	sub := &subscription{
		topic:     t,
		inFlight:  s.config.InFlight,
		drainFor:  s.config.DrainTimeout,
		abandoned: s.abandoned,
		logger:    s.config.Logger.With(watermill.LogFields{"topic": t.name, "group": s.config.Group}),
		out:       make(chan *message.Message),
		wake:      make(chan struct{}, 1),
		done:      make(chan struct{}),
		unsettled: make(map[*delivery]struct{}),
	}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	sub.group = t.join(s.config.Group)
	sub.group.subscriptions[sub] = struct{}{}
	return sub
}

// run delivers until the context ends, then drains.
func (s *subscription) run() {
	defer close(s.done)
	s.intake()
	s.drain()
	s.watchers.Wait()
	s.topic.mu.Lock()
	delete(s.group.subscriptions, s)
	s.topic.mu.Unlock()
	close(s.out)
	s.cancel()
}

func (s *subscription) intake() {
	for {
		it := s.next()
		if it == nil {
			return
		}
		d := s.newDelivery(it)
		select {
		case s.out <- d.msg:
			s.begin(d)
		case <-s.ctx.Done():
			d.cancel()
			s.topic.mu.Lock()
			s.group.putBack(it)
			s.topic.mu.Unlock()
			return
		}
	}
}

// next waits until there is a free slot and a message for it. It returns nil when
// the intake has ended.
func (s *subscription) next() *item {
	for {
		if s.ctx.Err() != nil {
			return nil
		}
		s.topic.mu.Lock()
		var it *item
		if len(s.unsettled) < s.inFlight {
			it = s.group.take()
		}
		s.topic.mu.Unlock()
		if it != nil {
			return it
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
		}
	}
}

// begin notes that a consumer has received the message. Only now is it a delivery.
func (s *subscription) begin(d *delivery) {
	s.topic.mu.Lock()
	d.item.deliveries++
	d.item.current = d
	s.unsettled[d] = struct{}{}
	s.topic.mu.Unlock()
	s.watchers.Go(d.watch)
}

// drain waits for what is unsettled, and takes back what is not settled in time.
func (s *subscription) drain() {
	timeout := time.NewTimer(s.drainFor)
	defer timeout.Stop()
	for {
		s.topic.mu.Lock()
		left := len(s.unsettled)
		s.topic.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-s.wake:
		case <-timeout.C:
			s.logger.Info("Unsettled messages are delivered again: they were not settled in time", watermill.LogFields{
				"count": left, "drain_timeout": s.drainFor.String(),
			})
			s.takeBack()
			return
		case <-s.abandoned:
			s.takeBack()
			return
		}
	}
}

// takeBack ends all deliveries as lost, except those settled a moment ago.
func (s *subscription) takeBack() {
	var dead []*delivery
	s.topic.mu.Lock()
	for d := range s.unsettled {
		how := lost
		select {
		case <-d.msg.Acked():
			how = acked
		case <-d.msg.Nacked():
			how = nacked
		default:
		}
		if d.settle(how) {
			dead = append(dead, d)
		}
		close(d.gone)
	}
	s.topic.mu.Unlock()
	for _, d := range dead {
		d.logDeath()
	}
}

// poke wakes the goroutine of the subscription, now or when it waits next.
func (s *subscription) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
