package handout

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Desk hands out the messages of one Subscribe call. It is safe for concurrent use.
type Desk struct {
	ctx     context.Context // every message's context derives from it; its end ends the intake
	stop    context.CancelFunc
	gone    context.Context // its end abandons what is unsettled
	abandon context.CancelFunc
	out     chan *message.Message
	slots   chan struct{}
	begun   atomic.Int64 // messages that handlers have now
	done    chan struct{}

	drainTimeout time.Duration
	logger       watermill.LoggerAdapter
}

// New returns a desk whose intake ends with ctx. Its log lines carry the fields.
func New(ctx context.Context, config brokers.SubscriberConfig, fields watermill.LogFields) *Desk {
	d := &Desk{
		out:          make(chan *message.Message),
		slots:        make(chan struct{}, config.InFlight),
		done:         make(chan struct{}),
		drainTimeout: config.DrainTimeout,
		logger:       config.Logger.With(fields.Add(watermill.LogFields{"group": config.Group})),
	}
	d.ctx, d.stop = context.WithCancel(ctx)
	d.gone, d.abandon = context.WithCancel(context.WithoutCancel(ctx))
	return d
}

// Context ends when the intake ends.
func (d *Desk) Context() context.Context { return d.ctx }

// Logger returns the subscriber's logger, with the desk's fields.
func (d *Desk) Logger() watermill.LoggerAdapter { return d.logger }

// Messages is the channel for the consumer. It is unbuffered: a message counts as
// delivered when it is received.
func (d *Desk) Messages() <-chan *message.Message { return d.out }

// Take waits for one of InFlight slots. It returns false if the intake or until ends first; until
// may be nil.
func (d *Desk) Take(until <-chan struct{}) bool {
	select {
	case d.slots <- struct{}{}:
		return true
	case <-until:
	case <-d.ctx.Done():
	}
	return false
}

// Put gives a slot back.
func (d *Desk) Put() { <-d.slots }

// Stop ends the intake. It may be called again.
func (d *Desk) Stop() { d.stop() }

// Abandon makes later settlements ineffective. It may be called again.
func (d *Desk) Abandon() { d.abandon() }

// Abandoned is closed by Abandon.
func (d *Desk) Abandoned() <-chan struct{} { return d.gone.Done() }

// Serve runs work, which must return once the intake has ended and all messages are settled.
// Messages that are unsettled at the drain timeout are abandoned.
func (d *Desk) Serve(work func()) {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		work()
	}()
	<-d.ctx.Done()
	late := time.NewTimer(d.drainTimeout)
	defer late.Stop()
	select {
	case <-idle:
		return
	case <-d.gone.Done():
	case <-late.C:
		d.NotSettled(int(d.begun.Load()), d.drainTimeout)
	}
	d.abandon()
	<-idle
}

// NotSettled logs that draining ended before n messages were settled.
func (d *Desk) NotSettled(n int, timeout time.Duration) {
	if n > 0 {
		d.logger.Info("Unsettled messages are delivered again: they were not settled in time", watermill.LogFields{
			"count": n, "drain_timeout": timeout.String(),
		})
	}
}

// Finish closes the consumer's channel. Call it once, after the last message was handed out.
func (d *Desk) Finish() {
	d.stop()
	d.abandon()
	close(d.out)
	close(d.done)
}

// Close ends the intake and waits for Finish. It returns nil.
func (d *Desk) Close() error {
	d.stop()
	<-d.done
	return nil
}
