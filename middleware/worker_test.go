package middleware_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// work runs a retry worker with one handler, in a synctest bubble, until during
// returns, and returns the worker after it has stopped.
func work(t *testing.T, in *middleware.Inbox, handler func(*message.Message) error, during func(), configure ...func(*middleware.RetryWorkerConfig)) *middleware.RetryWorker {
	t.Helper()
	c := middleware.RetryWorkerConfig{Handlers: map[string]message.HandlerFunc{"stock": handle(handler)}}
	for _, f := range configure {
		f(&c)
	}
	w, err := middleware.NewRetryWorker(in, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	during()
	stop()
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Hour):
		t.Fatal("the worker does not stop")
	}
	return w
}

// waitUntil polls in the time of a synctest bubble.
func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for range 100_000 {
		if done() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatal("it never happened")
}

// skipHook remembers what a worker did not run.
type skipHook struct {
	mu   sync.Mutex
	n    map[middleware.SkipReason]int
	last map[middleware.SkipReason]stores.Consumer
}

func (h *skipHook) RetrySkipped(c stores.Consumer, reason middleware.SkipReason, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.n == nil {
		h.n, h.last = make(map[middleware.SkipReason]int), make(map[middleware.SkipReason]stores.Consumer)
	}
	h.n[reason] += n
	h.last[reason] = c
}

func (h *skipHook) count(reason middleware.SkipReason) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.n[reason]
}

func (h *skipHook) consumer(reason middleware.SkipReason) stores.Consumer {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last[reason]
}
