package wrapped

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// subscription is one Subscribe call.
type subscription struct {
	source Source
	inner  message.Subscriber
	config brokers.SubscriberConfig

	intake    context.Context // ends with the caller's context, or by Close
	stop      context.CancelFunc
	out       chan *message.Message
	abandoned chan struct{} // closed when draining is over: no answer counts any more
	done      chan struct{}
}

func newSubscription(ctx context.Context, source Source, config brokers.SubscriberConfig) *subscription {
	s := &subscription{
		source: source, config: config,
		out: make(chan *message.Message), abandoned: make(chan struct{}), done: make(chan struct{}),
	}
	s.intake, s.stop = context.WithCancel(ctx)
	return s
}

// Close ends the intake and waits until all is settled or over. It returns nil.
func (s *subscription) Close() error {
	s.stop()
	<-s.done
	return nil
}

// run delivers until the intake ends, then drains.
func (s *subscription) run(in <-chan *message.Message, inFlight int) {
	defer close(s.done)
	var slots sync.WaitGroup
	for range inFlight {
		slots.Go(func() { s.work(in) })
	}
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		slots.Wait()
	}()
	<-s.intake.Done()
	s.drain(idle)
	leave(s.inner.Close, s.config.Logger)
	<-idle
	close(s.out)
}

// drain waits for the answers of handlers.
func (s *subscription) drain(idle <-chan struct{}) {
	defer close(s.abandoned)
	timeout := s.config.DrainTimeout
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		s.config.Logger.Info("Unsettled messages are delivered again: they were not settled in time", watermill.LogFields{
			"drain_timeout": timeout.String(),
		})
	}
}

// work is one slot.
func (s *subscription) work(in <-chan *message.Message) {
	for s.intake.Err() == nil { // select is fair
		select {
		case msg, ok := <-in:
			if !ok {
				s.stop() // the library has ended
				return
			}
			s.deliver(msg)
		case <-s.intake.Done():
		}
	}
}

// deliver hands a copy out, and passes on what the handler says. Its context has what the
// library knows, and ends with the intake. A handler may replace it, so the give-back is
// read from the one that was handed out.
func (s *subscription) deliver(from *message.Message) {
	facts := s.source.Read(from)
	msg := message.NewMessage(from.UUID, bytes.Clone(from.Payload))
	maps.Copy(msg.Metadata, from.Metadata)
	ctx, cancel := context.WithCancel(context.WithoutCancel(from.Context()))
	defer cancel()
	defer context.AfterFunc(s.intake, cancel)()
	ctx = brokers.WithDelivery(ctx, msg, facts)
	msg.SetContext(ctx)
	select {
	case s.out <- msg:
	case <-s.intake.Done():
		return // closing the library gives it back
	}
	select {
	case <-msg.Acked():
		s.source.Settle(from, Answer{Acked: true, Closing: s.intake.Done()})
	case <-msg.Nacked():
		s.source.Settle(from, Answer{GiveBack: brokers.GiveBackFrom(ctx), Closing: s.intake.Done()})
	case <-s.abandoned:
	}
}

// Delay waits as a nack asks, or as long as is usual. It reports false if the intake, or
// something else that the caller names, has ended before.
func (a Answer) Delay(usual, longest time.Duration, ended <-chan struct{}) bool {
	after := a.GiveBack.After
	if after <= 0 {
		after = usual
	}
	timer := time.NewTimer(min(after, longest))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-a.Closing:
	case <-ended:
	}
	return false
}
