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

// leaveTimeout bounds how long an ending subscription tries to settle messages that have a result.
const leaveTimeout = 10 * time.Second

// subscription is one call of Subscribe.
//
// Pollers receive messages into free slots. Each message is an item: it waits in its lane if it has
// one, is handed out, and then settled by a batch of deletes or visibility changes. Until then the
// keeper extends its visibility.
type subscription struct {
	*handout.Desk

	subscriber *Subscriber
	topic      string
	queue      atomic.Pointer[queue] // replaced after it was created again
	visibility time.Duration
	unread     func() // called when no message of the queue is in hand

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

// Run delivers until the intake ends, then drains. Running receives are not canceled: messages in
// an unread answer would stay hidden for the whole visibility timeout.
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
	// Nothing is in flight now; settling has its own timeout.
	close(s.keeper.stopping)
	keeping.Wait()
	defer time.AfterFunc(leaveTimeout, left).Stop()
	s.settling.deletes.close()
	s.settling.returns.close()
}
