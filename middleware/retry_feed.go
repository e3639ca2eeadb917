package middleware

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/pause"
	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores"
)

// feed is a Watermill subscriber that delivers the due messages of one consumer.
type feed struct {
	w        *RetryWorker
	handler  string
	consumer stores.Consumer
	reserve  time.Duration
	alarm    *alarm
}

func newFeed(w *RetryWorker, handler string, consumer stores.Consumer) *feed {
	c := &w.in.config
	const margin = time.Minute
	return &feed{
		w: w, handler: handler, consumer: consumer,
		// Twice what a run can take, so that half of it is there when it begins.
		reserve: 2*(c.ClaimTimeout+c.HandlerTimeout+2*c.CommitTimeout) + margin,
		alarm:   newAlarm(),
	}
}

// A batch is as large as can be run in about batchTime: what waits in it longer is late
// for no reason, and small ones ask too often.
const (
	batchTime  = time.Second
	batchLimit = 512
	batchBytes = 32 << 20 // of payloads that wait in memory, about
)

func payloadBytes(batch []stores.Retry) (n int) {
	for _, r := range batch {
		n += len(r.Content.Payload)
	}
	return n
}

// Subscribe implements message.Subscriber. The topic has no meaning.
func (f *feed) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		f.run(ctx, out)
	}()
	return out, nil
}

// Close implements message.Subscriber. The end of Subscribe's context stops the feed.
func (f *feed) Close() error { return nil }

func (f *feed) run(ctx context.Context, out chan<- *message.Message) {
	free := make(chan struct{}, f.w.config.Concurrency)
	var running sync.WaitGroup
	defer running.Wait()
	limit := f.w.config.Concurrency
	var (
		wait    time.Duration // after failures
		failing bool          // and said so
	)
	for ctx.Err() == nil {
		begun := time.Now()
		batch, err := f.due(ctx, limit)
		if ctx.Err() != nil {
			f.giveBack(ctx, batch, SkipStopping)
			return
		}
		if err != nil {
			wait = min(max(2*wait, f.w.config.PollInterval), max(30*time.Second, f.w.config.PollInterval))
			if !failing {
				f.w.in.log.Warn("millpond: retry worker cannot ask for due messages, and tries again",
					slog.String("consumer", f.consumer.String()), slog.String("error", text.Printable(err)))
			}
			failing = true
			pause.Sleep(ctx, pause.Jitter(wait))
			continue
		}
		wait, failing = 0, false
		for i, r := range batch {
			if !f.begin(ctx, out, free, &running, r, begun) {
				f.giveBack(ctx, batch[i:], SkipStopping)
				return
			}
		}
		switch took := time.Since(begun); {
		case len(batch) == 0:
			f.alarm.wait(ctx, f.w.config.PollInterval)
		case len(batch) < limit: // the store may give less than it has
		case took < batchTime/2 && payloadBytes(batch) < batchBytes/2:
			limit = min(2*limit, batchLimit)
		case took > 2*batchTime || payloadBytes(batch) > batchBytes:
			limit = max(limit/2, f.w.config.Concurrency)
		}
	}
}

// due reserves the next batch. A consumer that has received nothing yet is registered
// first.
func (f *feed) due(ctx context.Context, limit int) ([]stores.Retry, error) {
	// Not cancelled by the end of Run: what the store reserves has to be given back.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.w.in.config.ClaimTimeout)
	defer cancel()
	if !f.w.in.consumers.known(f.handler, "") {
		if err := f.w.in.consumers.register(ctx, f.handler, ""); err != nil {
			return nil, err
		}
	}
	batch, err := f.w.store.Due(ctx, stores.DueQuery{Consumer: f.consumer, Limit: limit, Reserve: f.reserve})
	if errors.Is(err, stores.ErrNotRegistered) || errors.Is(err, stores.ErrNotMigrated) {
		f.w.in.consumers.forget()
	}
	f.w.took(len(batch))
	return batch, err
}

// begin hands a message to the router when there is a free place. It reports false if
// the worker stops before.
func (f *feed) begin(ctx context.Context, out chan<- *message.Message, free chan struct{}, running *sync.WaitGroup, r stores.Retry, reserved time.Time) bool {
	select {
	case free <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	if time.Since(reserved) > f.reserve/2 {
		<-free
		f.giveBack(ctx, []stores.Retry{r}, SkipLate)
		return true
	}
	run := &retryRun{Retry: delivery.Retry{Row: r, Reserve: f.reserve}, over: make(chan struct{})}
	var msg *message.Message
	msg, run.Unreadable = f.w.in.restored(ctx, r)
	msgCtx, cancel := context.WithCancel(
		brokers.WithDelivery(ctx, msg, brokers.Delivery{Topic: r.Topic, Coordinates: r.Coordinates, Key: r.OrderKey}))
	msg.SetContext(msgCtx)
	f.w.in.workers.runs.Store(msg, run)
	select {
	case out <- msg:
	case <-ctx.Done():
		f.w.in.workers.runs.Delete(msg)
		cancel()
		<-free
		return false
	}
	running.Go(func() {
		defer cancel()
		defer f.w.in.workers.runs.Delete(msg)
		nacked := false
		select {
		case <-msg.Acked():
		case <-msg.Nacked():
			nacked = true
		}
		end := run.wait() // a handler may have acked it, and go on
		<-free
		if !nacked && !run.begun.Load() {
			f.w.in.log.Error("millpond: a parked message was acked and has not reached the inbox, so it will be due again: a middleware around the inbox has acked it, or handed on a copy",
				slog.String("consumer", f.consumer.String()), slog.String("id", text.Word(keys.Format(r.Key.ID))))
		}
		f.w.note(f.consumer, end)
		if r.OrderKey != nil {
			f.alarm.set(0) // the next one of its order key may go
		}
		if nacked {
			pause.Sleep(ctx, pause.Jitter(f.w.config.PollInterval)) // whatever was in the way may still be
			f.giveBack(ctx, []stores.Retry{r}, "")                  // nothing, if its failure is on record
		}
	})
	return true
}

// giveBack ends reservations of messages that were not begun.
func (f *feed) giveBack(ctx context.Context, batch []stores.Retry, reason SkipReason) {
	if reason != "" {
		f.w.skipped(f.consumer, reason, len(batch))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.w.in.config.ClaimTimeout)
	defer cancel()
	if err := f.w.store.Release(ctx, batch); err != nil {
		f.w.in.log.Warn("millpond: retry worker cannot give messages back; they are due again when their reservation ends",
			slog.String("consumer", f.consumer.String()), slog.Int("messages", len(batch)), slog.String("error", text.Printable(err)))
	}
}

// retryRun is a parked message on its way through the inbox.
type retryRun struct {
	delivery.Retry

	arrived stores.Fingerprint // of the message as it reached the inbox

	begun atomic.Bool   // it has reached the inbox
	over  chan struct{} // closed when that has let go of it
	once  sync.Once
	end   DeliveryEnd // then
}

// runOf returns the run of a message that a worker of this inbox has handed out, nil for
// any other. Contexts travel with messages that a handler publishes: they do not tell.
func (w *workers) runOf(msg *message.Message) *retryRun {
	found, ok := w.runs.Load(msg)
	if !ok {
		return nil
	}
	run, _ := found.(*retryRun)
	run.begun.Store(true)
	return run
}

// ended notes how the inbox let go of it. It is called before the message is settled.
func (r *retryRun) ended(end DeliveryEnd) {
	if r != nil {
		r.once.Do(func() { r.end = end; close(r.over) })
	}
}

// wait returns how the inbox let go of a message that was settled; of one that a
// middleware around the inbox has settled, nothing.
func (r *retryRun) wait() DeliveryEnd {
	if !r.begun.Load() {
		return DeliveryEnd{}
	}
	<-r.over
	return r.end
}

// alarm wakes one sleeper at the earliest of the times that were set.
type alarm struct {
	mu      sync.Mutex
	at      time.Time // zero: not set
	changed chan struct{}
}

func newAlarm() *alarm { return &alarm{changed: make(chan struct{}, 1)} }

func (a *alarm) set(in time.Duration) {
	at := time.Now().Add(in)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at.IsZero() && a.at.Before(at) {
		return
	}
	a.at = at
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// wait returns at the alarm, after longest, or when ctx ends.
func (a *alarm) wait(ctx context.Context, longest time.Duration) {
	deadline := time.Now().Add(pause.Jitter(longest))
	for {
		a.mu.Lock()
		until := deadline
		if !a.at.IsZero() && a.at.Before(until) {
			until = a.at
		}
		if !time.Now().Before(until) {
			a.at = time.Time{}
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		timer := time.NewTimer(time.Until(until))
		select {
		case <-timer.C:
		case <-a.changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// workers are the retry workers of this process.
type workers struct {
	log  *slog.Logger
	runs sync.Map // *message.Message → *retryRun, of those that are handed out

	mu     sync.Mutex
	next   int
	wakers map[int]func(stores.Consumer, time.Duration)
	warned bool
}

func newWorkers(log *slog.Logger) *workers {
	return &workers{log: log, wakers: make(map[int]func(stores.Consumer, time.Duration))}
}

func (w *workers) join(wake func(stores.Consumer, time.Duration)) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.next
	w.next++
	w.wakers[id], w.warned = wake, true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.wakers, id)
	}
}

// parked tells the workers that a message will be due. If there has never been one it
// says so, once.
func (w *workers) parked(c stores.Consumer, due time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.warned {
		w.warned = true
		w.log.Warn("millpond: a message is parked and no retry worker has run in this process: start a middleware.RetryWorker, here or elsewhere, or set RetryPolicy.Placement to redelivered")
	}
	for _, wake := range w.wakers {
		wake(c, due)
	}
}
