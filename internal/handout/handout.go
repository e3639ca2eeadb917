// Package handout hands messages of one Subscribe call to its consumer, waits for what
// becomes of each, and drains. What an ack or a nack means to the server is the adapter's.
package handout

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Fate is what has become of a message.
type Fate int

const (
	Acked Fate = iota
	Nacked
	Unbegun   // nobody has received it
	Abandoned // draining has ended before its handler
)

// Desk hands out the messages of one Subscribe call. It is safe for concurrent use.
type Desk struct {
	ctx    context.Context // of all its messages; its end ends the intake
	cancel context.CancelFunc
	out    chan *message.Message
	gone   chan struct{} // closed when draining ends: settlements no longer count
	leave  sync.Once
	over   sync.Once
}

// New returns a desk whose intake ends with ctx.
func New(ctx context.Context) *Desk {
	d := &Desk{out: make(chan *message.Message), gone: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(ctx)
	return d
}

// Context ends when the intake does.
func (d *Desk) Context() context.Context { return d.ctx }

// Messages is the channel for the consumer. It is unbuffered: a message counts as
// delivered when it is received.
func (d *Desk) Messages() <-chan *message.Message { return d.out }

// Handout is one message on its way to the consumer.
type Handout struct {
	Message *message.Message
	Facts   brokers.Delivery

	// Keep, if not nil, is called every KeepEvery while a handler has the message.
	Keep      func()
	KeepEvery time.Duration
}

// Deliver hands a message out and waits until it is settled. The message's context ends
// when it returns. The give-back is that of a nack.
func (d *Desk) Deliver(h Handout) (Fate, brokers.GiveBack) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	ctx = brokers.WithDelivery(ctx, h.Message, h.Facts)
	h.Message.SetContext(ctx)
	if d.ctx.Err() != nil {
		return Unbegun, brokers.GiveBack{}
	}
	var alarm <-chan time.Time
	if h.Keep != nil {
		ticker := time.NewTicker(h.KeepEvery)
		defer ticker.Stop()
		alarm = ticker.C
	}
	out := d.out
	for {
		select {
		case out <- h.Message:
			return d.await(ctx, h, alarm)
		case <-alarm:
			h.Keep()
		case <-d.ctx.Done():
			return Unbegun, brokers.GiveBack{}
		}
	}
}

// await waits for a handler. It may have replaced the message's context, so the give-back
// is read from the one that was handed out.
func (d *Desk) await(ctx context.Context, h Handout, alarm <-chan time.Time) (Fate, brokers.GiveBack) {
	for {
		select {
		case <-h.Message.Acked():
			return Acked, brokers.GiveBack{}
		case <-h.Message.Nacked():
			return Nacked, brokers.GiveBackFrom(ctx)
		case <-alarm:
			h.Keep()
		case <-d.gone:
			select {
			case <-h.Message.Acked(): // a moment ago
				return Acked, brokers.GiveBack{}
			default:
				return Abandoned, brokers.GiveBack{}
			}
		}
	}
}

// Stop ends the intake. It may be called many times.
func (d *Desk) Stop() { d.cancel() }

// Abandon lets no settlement count any more. It may be called many times.
func (d *Desk) Abandon() { d.leave.Do(func() { close(d.gone) }) }

// Drain waits until idle is closed, at most for a time; then what is unsettled is abandoned
// and idle is waited for again. It reports whether all was settled in time.
func (d *Desk) Drain(idle <-chan struct{}, timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		d.Abandon()
		<-idle
		return false
	}
}

// Close closes the consumer's channel. Nothing may be delivered any more.
func (d *Desk) Close() {
	d.cancel()
	d.over.Do(func() { close(d.out) })
}

// Delay is the pause before a nacked message comes again: what the give-back asks for, or
// one that doubles with each delivery from first to longest.
func Delay(g brokers.GiveBack, count int, first, longest time.Duration) time.Duration {
	if g.After > 0 {
		return g.After
	}
	return min(first<<min(max(count, 1)-1, 10), max(first, longest))
}
