package main

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// watch sees how messages end; see middleware.Hook.
type watch struct {
	mu      sync.Mutex
	acked   map[published]bool
	tripped map[string]bool // orders of which an attempt has failed
	changed chan struct{}
}

// published is a message of the shop: an order, or its duplicate. A broker may deliver it
// more than once.
type published struct{ order, copied string }

func newWatch() *watch {
	return &watch{acked: make(map[published]bool), tripped: make(map[string]bool), changed: make(chan struct{}, 1)}
}

type publishedKey struct{}

// DeliveryStart implements middleware.DeliveryStartHook.
func (*watch) DeliveryStart(ctx context.Context, d middleware.DeliveryStart) context.Context {
	return context.WithValue(ctx, publishedKey{}, published{d.Message.UUID, d.Message.Metadata.Get(copyField)})
}

// DeliveryEnd implements middleware.DeliveryEndHook.
func (w *watch) DeliveryEnd(ctx context.Context, d middleware.DeliveryEnd) {
	p, _ := ctx.Value(publishedKey{}).(published)
	w.mu.Lock()
	if !d.Retry && acks(d.Result) {
		w.acked[p] = true
	}
	if d.Attempts > 0 {
		w.tripped[p.order] = true
	}
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default: // somebody is about to look anyway
	}
}

// acks reports whether the broker will be told that it need not keep the message.
func acks(r middleware.Result) bool {
	return r != middleware.ResultGivenBack && r != middleware.ResultPanicked && r != middleware.ResultNotNow
}

// seen is what a watch has seen so far.
type seen struct {
	acked   int // messages of the shop
	tripped map[string]bool
}

func (w *watch) seen() seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return seen{acked: len(w.acked), tripped: maps.Clone(w.tripped)}
}

// settled waits until the broker has n messages less and nothing waits for another attempt.
func (w *watch) settled(ctx context.Context, store stores.Inspector, n int) error {
	for {
		acked, pending := w.seen().acked, 0
		counts, err := store.Counts(ctx, orderCount)
		if err != nil && ctx.Err() == nil {
			return err
		}
		for _, c := range counts {
			if c.Status == stores.StatusPending.String() {
				pending += c.N
			}
		}
		if err == nil && acked == n && pending == 0 {
			return nil
		}
		select {
		case <-w.changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d messages are settled, %d orders wait for another attempt: %w", acked, n, pending, context.Cause(ctx))
		}
	}
}
