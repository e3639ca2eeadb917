package wrapped

import (
	"bytes"
	"context"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/handout"
)

// subscription is one Subscribe call.
type subscription struct {
	*handout.Desk

	source Source
	inner  message.Subscriber
	in     <-chan *message.Message
	slots  int
}

// Run delivers until the intake ends, then drains. Closing the library gives back what is
// unsettled, and ends a Settle that waits for it.
func (s *subscription) Run() {
	defer s.Finish()
	left := make(chan struct{})
	go func() {
		defer close(left)
		<-s.Abandoned()
		leave(s.inner.Close, s.Logger())
	}()
	s.Serve(func() {
		var slots sync.WaitGroup
		defer slots.Wait()
		for range s.slots {
			slots.Go(s.work)
		}
	})
	s.Abandon()
	<-left
}

// work is one slot.
func (s *subscription) work() {
	for s.Context().Err() == nil { // select is fair
		select {
		case msg, ok := <-s.in:
			if !ok {
				s.Stop() // the library has ended
				return
			}
			s.deliver(msg)
		case <-s.Context().Done():
		}
	}
}

// deliver hands a copy out, and passes on what the handler says.
func (s *subscription) deliver(from *message.Message) {
	facts := s.source.Read(from)
	msg := message.NewMessage(from.UUID, bytes.Clone(from.Payload))
	maps.Copy(msg.Metadata, from.Metadata)
	h := s.Handout(msg, facts)
	msg.SetContext(knowing{msg.Context(), from.Context()})
	if fate, giveBack := h.Deliver(); fate == handout.Acked || fate == handout.Nacked {
		s.source.Settle(from, Answer{Acked: fate == handout.Acked, GiveBack: giveBack, Closing: s.Context().Done()})
	}
}

// knowing is a context that also has the values that the library gives to a message.
type knowing struct {
	context.Context

	library context.Context
}

func (c knowing) Value(key any) any {
	if value := c.Context.Value(key); value != nil {
		return value
	}
	return c.library.Value(key)
}

// Delay waits for the delay of a nack, or for the usual one. It returns false if the
// intake ends, or ended is closed, before.
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
