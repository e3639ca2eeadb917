package sqs

import (
	"context"
	"sync"
	"time"
)

// batcher collects entries for requests of up to ten. It sends a batch when it is full, when its
// first entry has waited for linger, or when flush is called.
type batcher[T any] struct {
	linger time.Duration
	send   func(batch []T) // called on its own goroutine

	mu      sync.Mutex
	pending []T
	timer   *time.Timer
	waiting int // entries whose sending has not ended
	eased   sync.Cond
	sending sync.WaitGroup
}

func newBatcher[T any](linger time.Duration, send func(batch []T)) *batcher[T] {
	b := &batcher[T]{linger: linger, send: send}
	b.eased.L = &b.mu
	return b
}

// add adds entries to the batch. Those of one call stay next to each other.
func (b *batcher[T]) add(entries ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending = append(b.pending, entries...)
	b.waiting += len(entries)
	for len(b.pending) >= batchSize {
		b.dispatch(batchSize)
	}
	if len(b.pending) > 0 && b.timer == nil {
		b.timer = time.AfterFunc(b.linger, b.flush)
	}
}

// flush sends the collected entries.
func (b *batcher[T]) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pending) > 0 {
		b.dispatch(len(b.pending))
	}
}

// dispatch sends the first n entries. b.mu must be held.
func (b *batcher[T]) dispatch(n int) {
	batch := append([]T(nil), b.pending[:n]...)
	b.pending = append(b.pending[:0], b.pending[n:]...)
	if len(b.pending) == 0 && b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.sending.Go(func() {
		b.send(batch)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.waiting -= len(batch)
		b.eased.Broadcast()
	})
}

// ease waits until no more than most entries are unsent, so that they do not pile up while a
// service does not answer. It also ends with ctx.
func (b *batcher[T]) ease(ctx context.Context, most int) {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.eased.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.waiting > most && ctx.Err() == nil {
		b.eased.Wait()
	}
}

// close sends the rest and waits until all sending has ended. Nothing may be added afterwards.
func (b *batcher[T]) close() {
	b.flush()
	b.sending.Wait()
}
