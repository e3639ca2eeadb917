package sqs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// leaveTimeout bounds how long a subscription that ends tries to settle what was decided.
const leaveTimeout = 10 * time.Second

// subscription is one call of Subscribe.
//
// Pollers receive messages into free slots. Each message is an item: it waits in its lane
// if it has one, is delivered, and then settled by a batch of deletes or of changed
// visibilities. The keeper extends the visibility of every item until then.
type subscription struct {
	subscriber *Subscriber
	topic      string
	logger     watermill.LoggerAdapter
	queue      atomic.Pointer[queue] // another one after it was made again
	visibility time.Duration

	ctx    context.Context // of all its messages; its end ends the intake
	cancel context.CancelFunc
	out    chan *message.Message
	gone   chan struct{} // closed when draining ends: settlements no longer count
	done   chan struct{}

	intake     intake
	keeper     keeper
	lanes      lanes
	deliveries sync.WaitGroup

	deletes *batcher[*item]
	returns *batcher[giveBack]
	leave   context.Context // of requests that settle; ends some time after draining
}

func newSubscription(ctx context.Context, s *Subscriber, topic string, q *queue) *subscription {
	config := &s.broker.config.Consume
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		logger:     s.config.Logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group, "queue": q.name}),
		visibility: config.Visibility,
		out:        make(chan *message.Message),
		gone:       make(chan struct{}),
		done:       make(chan struct{}),
	}
	if sub.visibility == 0 {
		sub.visibility = max(q.facts.visibility, time.Second)
	}
	sub.queue.Store(q)
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	sub.intake.init(sub)
	sub.keeper.init(sub)
	sub.deletes = newBatcher(config.Linger, sub.deleteAll)
	sub.returns = newBatcher(config.Linger, sub.giveBackAll)
	return sub
}

// Close ends the intake and waits until all is settled or over. It returns nil.
func (s *subscription) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// run delivers until the context ends, then drains.
func (s *subscription) run() {
	defer close(s.done)
	defer s.cancel()
	leave, left := context.WithCancel(context.WithoutCancel(s.ctx))
	defer left()
	s.leave = leave
	var keeping sync.WaitGroup
	keeping.Go(s.keeper.run)
	polling := s.intake.start()
	<-s.ctx.Done()
	s.drain(polling)
	// Nothing is in flight any more; what is settled has its own clock.
	s.keeper.stop()
	keeping.Wait()
	late := time.AfterFunc(leaveTimeout, left)
	defer late.Stop()
	s.deletes.close()
	s.returns.close()
	close(s.out)
}

// drain waits for the handlers that run, and for the receives. These are not cancelled:
// what SQS has given to a receive whose answer nobody takes stays hidden for the whole
// visibility timeout.
func (s *subscription) drain(polling *sync.WaitGroup) {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		polling.Wait()
		s.deliveries.Wait()
	}()
	timer := time.NewTimer(s.subscriber.config.DrainTimeout)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
		close(s.gone)
		if n := s.keeper.running(); n > 0 {
			s.logger.Info("Draining has ended with messages unsettled; they come again after the visibility timeout", watermill.LogFields{"messages": n})
		}
		<-settled
	}
}
