package sqs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/lanes"
)

// leaveTimeout bounds how long a subscription that ends tries to settle what was decided.
const leaveTimeout = 10 * time.Second

// subscription is one call of Subscribe.
//
// Pollers receive messages into free slots. Each message is an item: it waits in its lane
// if it has one, is handed out, and then settled by a batch of deletes or of changed
// visibilities. The keeper extends the visibility of every item until then.
type subscription struct {
	*handout.Desk

	subscriber *Subscriber
	topic      string
	queue      atomic.Pointer[queue] // another one after it was made again
	visibility time.Duration
	unread     func() // what is called when nothing of the queue is in hand any more

	intake     intake
	keeper     keeper
	lanes      lanes.Lanes[*item] // by group of a FIFO queue
	deliveries sync.WaitGroup
	settling   settling
}

func newSubscription(ctx context.Context, s *Subscriber, topic string, q *queue) *subscription {
	config := &s.broker.config.Consume
	sub := &subscription{
		Desk:       handout.New(ctx, s.config, watermill.LogFields{"topic": topic, "queue": q.name}),
		subscriber: s, topic: topic, visibility: config.Visibility, unread: func() { s.broker.unread(q) },
	}
	if sub.visibility == 0 {
		sub.visibility = max(q.facts.visibility, time.Second)
	}
	sub.queue.Store(q)
	sub.intake.init(sub)
	sub.keeper.init(sub)
	sub.settling.deletes = newBatcher(config.Linger, sub.deleteAll)
	sub.settling.returns = newBatcher(config.Linger, sub.giveBackAll)
	return sub
}

// Run delivers until the intake ends, then drains. Receives under way are not cancelled:
// what SQS has given to a receive whose answer nobody takes stays hidden for the whole
// visibility timeout.
func (s *subscription) Run() {
	defer s.Finish()
	defer s.unread()
	leave, left := context.WithCancel(context.WithoutCancel(s.Context()))
	defer left()
	s.settling.leave = leave
	var keeping sync.WaitGroup
	keeping.Go(s.keeper.run)
	s.Serve(func() {
		s.intake.run()
		s.deliveries.Wait()
	})
	// Nothing is in flight any more; what is settled has its own clock.
	close(s.keeper.stopping)
	keeping.Wait()
	defer time.AfterFunc(leaveTimeout, left).Stop()
	s.settling.deletes.close()
	s.settling.returns.close()
}
