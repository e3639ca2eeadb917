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
