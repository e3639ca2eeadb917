package middleware

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/stores"
)

// retryRun is the run of a parked message through the inbox.
type retryRun struct {
	delivery.Retry

	arrived stores.Fingerprint // of the message as it reached the inbox

	begun atomic.Bool   // it has reached the inbox
	over  chan struct{} // closed when the inbox is done with it
	once  sync.Once
	end   DeliveryEnd // set before over is closed
}

// runOf returns the run of a message that a worker of this inbox has handed out, or nil. It does
// not look at the context, which travels with messages that a handler publishes.
func (w *workers) runOf(msg *message.Message) *retryRun {
	found, ok := w.runs.Load(msg)
	if !ok {
		return nil
	}
	run, _ := found.(*retryRun)
	run.begun.Store(true)
	return run
}

// ended notes the end of the delivery in the inbox. It is called before the message is settled.
func (r *retryRun) ended(end DeliveryEnd) {
	if r != nil {
		r.once.Do(func() { r.end = end; close(r.over) })
	}
}

// wait returns the end of the delivery in the inbox. It is zero if a middleware around the inbox
// settled the message.
func (r *retryRun) wait() DeliveryEnd {
	if !r.begun.Load() {
		return DeliveryEnd{}
	}
	<-r.over
	return r.end
}

// workers has the retry workers of an inbox.
type workers struct {
	log  *slog.Logger
	runs sync.Map // *message.Message → *retryRun, of handed-out messages

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

// parked tells the workers when a message will be due. Without a worker it logs a warning, once.
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
