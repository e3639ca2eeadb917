package middleware

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/loop"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// feed is a Watermill subscriber that delivers the due messages of one consumer.
type feed struct {
	w        *RetryWorker
	handler  string
	consumer stores.Consumer
	loop     *loop.Loop[stores.Retry]
	out      chan *message.Message
}

// reservation is how long a message belongs to a worker that does not renew it. It is short, so
// that the messages of a killed process are soon due for others.
const reservation = 20 * time.Second

// batchBytes bounds the reserved messages of one consumer that wait in memory, without those that
// run.
const batchBytes = 16 << 20

func newFeed(w *RetryWorker, handler string, consumer stores.Consumer) *feed {
	f := &feed{
		w: w, handler: handler, consumer: consumer,
		out: make(chan *message.Message),
	}
	f.loop = loop.New(w.config.Concurrency, w.config.PollInterval, loop.Work[stores.Retry]{
		Ask:   f.due,
		Begin: f.begin,
		Renew: func(ctx context.Context, batch []stores.Retry) error {
			ctx, cancel := context.WithTimeout(ctx, reservation/4)
			defer cancel()
			return w.store.Renew(ctx, batch, reservation) //nolint:wrapcheck // the loop drops it
		},
		Renewal:  reservation / 4,
		GiveBack: func(ctx context.Context, batch []stores.Retry) { f.giveBack(ctx, batch, SkipStopping) },
		Failing: func(err error) {
			w.in.config.Logger.Warn("millpond: retry worker cannot ask for due messages, and tries again",
				slog.String("consumer", consumer.String()), slog.String("error", text.Printable(err)))
		},
	})
	return f
}

// Subscribe implements message.Subscriber. It ignores the topic.
func (f *feed) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	go func() {
		defer close(f.out)
		f.loop.Run(ctx)
	}()
	return f.out, nil
}

// Close implements message.Subscriber. A feed stops when Subscribe's context ends.
func (f *feed) Close() error { return nil }

// due reserves the next batch. If no consumer is registered yet, it registers one first.
func (f *feed) due(ctx context.Context, limit int) ([]stores.Retry, error) {
	ctx, cancel := context.WithTimeout(ctx, f.w.in.config.ClaimTimeout)
	defer cancel()
	if !f.w.in.consumers.known(f.handler, "") {
		if err := f.w.in.consumers.register(ctx, f.handler, ""); err != nil {
			return nil, err
		}
	}
	batch, err := f.w.store.Due(ctx, stores.DueQuery{Consumer: f.consumer, Limit: limit, MaxBytes: batchBytes, Reserve: reservation})
	if errors.Is(err, stores.ErrNotRegistered) || errors.Is(err, stores.ErrNotMigrated) {
		f.w.in.consumers.forget()
	}
	f.w.took(len(batch))
	return batch, err
}

// begin hands a message to the router.
func (f *feed) begin(ctx context.Context, r stores.Retry, reserved time.Time) func(free func()) {
	if time.Since(reserved) > reservation/2 {
		return func(free func()) {
			free()
			f.giveBack(ctx, []stores.Retry{r}, SkipLate)
		}
	}
	run := &retryRun{Retry: delivery.Retry{Row: r, Read: reserved, Reserve: reservation}, over: make(chan struct{})}
	policy := &f.w.in.handlers.policy(f.handler).machine
	if !f.w.in.core.CountDecoding(ctx, &run.Retry, policy) {
		return func(free func()) { // the message is due again when its reservation ends
			free()
			f.w.skipped(f.consumer, SkipNotNow, 1)
		}
	}
	var (
		msg   *message.Message
		facts brokers.Delivery
	)
	if run.Unreadable != nil {
		msg = message.NewMessage(r.Content.UUID, nil)
	} else {
		msg, facts, run.Unreadable = f.w.in.restored(ctx, r)
	}
	msgCtx, cancel := context.WithCancel(brokers.WithDelivery(ctx, msg, facts))
	msg.SetContext(msgCtx)
	f.w.in.workers.runs.Store(msg, run)
	out := f.out
	if ctx.Err() != nil { // the codec may have failed because of it
		out = nil
	}
	select {
	case out <- msg:
	case <-ctx.Done():
		f.w.in.workers.runs.Delete(msg)
		cancel()
		f.w.in.core.UncountDecoding(ctx, &run.Retry, policy)
		return nil
	}
	return func(free func()) {
		defer cancel()
		defer f.w.in.workers.runs.Delete(msg)
		f.await(ctx, msg, run, free)
	}
}

// await waits until the router is done with a message.
func (f *feed) await(ctx context.Context, msg *message.Message, run *retryRun, free func()) {
	nacked := false
	select {
	case <-msg.Acked():
	case <-msg.Nacked():
		nacked = true
	}
	end := run.wait() // a handler may ack early and still run
	free()
	if !nacked && !run.begun.Load() {
		f.w.in.config.Logger.Error("millpond: a parked message was acked and has not reached the inbox, so it will be due again: a middleware around the inbox has acked it, or handed on a copy",
			slog.String("consumer", f.consumer.String()), slog.String("id", text.Word(keys.Format(run.Row.Key.ID))))
	}
	f.w.note(f.consumer, end)
	if run.Row.OrderKey != nil {
		f.loop.Wake(0) // the next message of its order key may run
	}
	if nacked {
		pause.Sleep(ctx, pause.Jitter(f.w.config.PollInterval)) // the obstacle may still be there
		f.giveBack(ctx, []stores.Retry{run.Row}, "")            // does nothing if its failure is on record
	}
}

// giveBack ends the reservations of messages that did not begin.
func (f *feed) giveBack(ctx context.Context, batch []stores.Retry, reason SkipReason) {
	if len(batch) == 0 {
		return
	}
	if reason != "" {
		f.w.skipped(f.consumer, reason, len(batch))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.w.in.config.ClaimTimeout)
	defer cancel()
	if err := f.w.store.Release(ctx, batch); err != nil {
		f.w.in.config.Logger.Warn("millpond: retry worker cannot give messages back; they are due again when their reservation ends",
			slog.String("consumer", f.consumer.String()), slog.Int("messages", len(batch)), slog.String("error", text.Printable(err)))
	}
}
