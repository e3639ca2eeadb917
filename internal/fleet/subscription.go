package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// subscription is one Subscribe call.
type subscription struct {
	*Worker

	out     chan *message.Message
	begun   sync.WaitGroup // deliveries in the hands of handlers
	abandon chan struct{}  // closed when they took too long to drain
}

func (s *subscription) run(ctx context.Context, queue <-chan deliver) {
	defer s.running.Done()
	defer close(s.out)
	defer s.drain()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closing:
			return
		case d := <-queue:
			s.hand(ctx, d)
		}
	}
}

func (s *subscription) drain() {
	drained := make(chan struct{})
	go func() {
		s.begun.Wait()
		close(drained)
	}()
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
		close(s.abandon) // they stay unsettled, and come again
	}
}

// hand gives one delivery to the handlers, or back if there are none any more.
func (s *subscription) hand(ctx context.Context, d deliver) {
	msg := message.NewMessage(d.Message.UUID, d.Message.Payload)
	deliveryCtx, cancel := context.WithCancel(brokers.WithDelivery(ctx, msg, facts(d)))
	maps.Copy(msg.Metadata, d.Message.Metadata)
	msg.SetContext(deliveryCtx)
	select {
	case s.out <- msg:
		s.begun.Go(func() {
			defer cancel()
			s.await(deliveryCtx, d.ID, msg)
		})
		return
	case <-ctx.Done():
	case <-s.closing:
	}
	cancel()
	s.send(toParent{Settle: &settle{ID: d.ID}})
}

// await passes on how the message was settled.
func (s *subscription) await(ctx context.Context, id uint64, msg *message.Message) {
	select {
	case <-msg.Acked():
		s.send(toParent{Settle: &settle{ID: id, Ack: true}})
	case <-msg.Nacked():
		back := brokers.GiveBackFrom(ctx)
		s.send(toParent{Settle: &settle{ID: id, After: back.After, Failed: back.Failed}})
	case <-s.abandon:
	}
}

func facts(d deliver) brokers.Delivery {
	f := brokers.Delivery{
		Topic:       d.Message.Topic,
		NativeID:    d.Message.NativeID,
		Coordinates: fmt.Sprintf("%s/%d", d.Message.Topic, d.Number),
		Key:         d.Message.Key,
		Time:        d.Time,
		Count:       d.Count,
		Suspect:     d.Count > 1,
	}
	if d.Message.Undecodable != "" {
		f.Undecodable = errors.New(d.Message.Undecodable)
	}
	return f
}
