package handout

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Fate is how a message was settled, if it was.
type Fate int

const (
	Acked Fate = iota
	Nacked
	Unbegun   // the consumer has not received it
	Abandoned // its settlement no longer counts
)

// Handout is one message on its way to the consumer and back.
type Handout struct {
	Withdrawn <-chan struct{} // closed when it must no longer be handed out; nil: with the intake
	Lost      <-chan struct{} // closed when its settlement no longer counts; nil: with the desk's

	// Keep, if not nil, is called every KeepEvery while the message is in hand.
	Keep      func()
	KeepEvery time.Duration

	desk   *Desk
	msg    *message.Message
	ctx    context.Context // as handed out: a handler may have replaced the message's
	cancel context.CancelCauseFunc
	ticker *time.Ticker
}

// Handout prepares a message to be handed out.
func (d *Desk) Handout(msg *message.Message, facts brokers.Delivery) *Handout {
	h := &Handout{desk: d, msg: msg}
	h.ctx, h.cancel = context.WithCancelCause(d.ctx)
	h.ctx = brokers.WithDelivery(h.ctx, msg, facts)
	msg.SetContext(h.ctx)
	return h
}

// End ends the message's context.
func (h *Handout) End(cause error) { h.cancel(cause) }

// Deliver hands the message out and waits for its fate. A nack comes with its GiveBack.
func (h *Handout) Deliver() (Fate, brokers.GiveBack) {
	if !h.Offer() {
		return Unbegun, brokers.GiveBack{}
	}
	return h.Await()
}

// Offer waits until the consumer has received the message. It returns false if the message was
// withdrawn or the intake ended first.
func (h *Handout) Offer() (received bool) {
	var alarm <-chan time.Time
	if h.Keep != nil {
		h.ticker = time.NewTicker(h.KeepEvery)
		alarm = h.ticker.C
	}
	defer func() {
		if !received {
			h.end()
		}
	}()
	select { // first, because a select with several ready cases picks any of them
	case <-h.Withdrawn:
		return false
	case <-h.desk.ctx.Done():
		return false
	default:
	}
	for {
		select {
		case h.desk.out <- h.msg:
			h.desk.begun.Add(1)
			return true
		case <-alarm:
			h.Keep()
		case <-h.Withdrawn:
			return false
		case <-h.desk.ctx.Done():
			return false
		}
	}
}

// Await waits for the fate of a received message, and then ends the message's context.
func (h *Handout) Await() (Fate, brokers.GiveBack) {
	defer h.end()
	defer h.desk.begun.Add(-1)
	var alarm <-chan time.Time
	if h.ticker != nil {
		alarm = h.ticker.C
	}
	for {
		select {
		case <-h.msg.Acked():
			return h.settled()
		case <-h.msg.Nacked():
			return h.settled()
		case <-alarm:
			h.Keep()
		case <-h.Lost:
			return h.settled()
		case <-h.desk.gone.Done():
			return h.settled()
		}
	}
}

// settled prefers the handler's settlement, even one that has just come.
func (h *Handout) settled() (Fate, brokers.GiveBack) {
	select {
	case <-h.msg.Acked():
		return Acked, brokers.GiveBack{}
	case <-h.msg.Nacked():
		return Nacked, brokers.GiveBackFrom(h.ctx)
	default:
		return Abandoned, brokers.GiveBack{}
	}
}

// Unfinished reports, after the settlement, that no earlier delivery had finished processing a
// suspect message.
func (h *Handout) Unfinished() bool { return brokers.UnfinishedFrom(h.ctx) }

func (h *Handout) end() {
	h.cancel(nil)
	if h.ticker != nil {
		h.ticker.Stop()
	}
}

// Delay returns the pause before a nacked message is redelivered. Without one in the give-back it
// doubles with each delivery, counted from 1, from first up to longest.
func Delay(g brokers.GiveBack, count int, first, longest time.Duration) time.Duration {
	if g.After > 0 {
		return g.After
	}
	return min(first<<min(max(count, 1)-1, 10), max(first, longest))
}
