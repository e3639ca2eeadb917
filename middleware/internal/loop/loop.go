// Package loop asks for due work, hands it out to a bounded number of places, and sleeps until it
// is woken when there is none. It knows nothing about the work.
package loop

import (
	"context"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// A batch takes about batchTime: in larger batches items wait needlessly, and smaller ones ask too
// often.
const (
	batchTime  = time.Second
	batchLimit = 512
	// longestPause is the longest pause between failing requests.
	longestPause = 30 * time.Second
)

// Work is what a loop does. Run's goroutine calls Ask, Begin, GiveBack and Failing. Renew, and what
// Begin returns, run on their own goroutines.
type Work[T any] struct {
	// Ask reserves at most limit due items. Its context does not end with the loop, because
	// reserved items must be given back.
	Ask func(ctx context.Context, limit int) ([]T, error)
	// Begin begins an item in a free place. It returns the rest of the work, which calls free once,
	// when the place is free again. It returns nil if ctx ended before it could begin.
	Begin func(ctx context.Context, item T, reserved time.Time) (rest func(free func()))
	// Renew renews the reservations of items that have not begun or whose rest has not ended. It is
	// called every Renewal.
	Renew   func(ctx context.Context, items []T) error
	Renewal time.Duration
	// GiveBack gives back items that did not begin when the loop stops. ctx has ended.
	GiveBack func(ctx context.Context, items []T)
	// Failing is called when Ask begins to fail.
	Failing func(err error)
}

// Loop does one kind of work.
type Loop[T any] struct {
	work   Work[T]
	places int
	poll   time.Duration
	alarm  *alarm
	held   *held[T]
}

// New returns a loop with so many places. While nothing is due it asks every poll.
func New[T any](places int, poll time.Duration, w Work[T]) *Loop[T] {
	return &Loop[T]{work: w, places: places, poll: poll, alarm: newAlarm(), held: newHeld[T]()}
}

// Wake makes the loop ask after in.
func (l *Loop[T]) Wake(in time.Duration) { l.alarm.set(in) }

// Run works until ctx ends. Then it begins nothing more, and returns when all work that has begun
// is done.
func (l *Loop[T]) Run(ctx context.Context) {
	free := make(chan struct{}, l.places)
	var busy sync.WaitGroup
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	var renewal sync.WaitGroup
	renewal.Go(func() { l.renew(renewing) })
	defer renewal.Wait()
	defer stop()
	defer busy.Wait()
	limit, wait := l.places, time.Duration(0)
	for ctx.Err() == nil {
		begun := time.Now()
		batch, err := l.work.Ask(context.WithoutCancel(ctx), limit)
		if err != nil && ctx.Err() == nil {
			if wait == 0 {
				l.work.Failing(err)
			}
			wait = min(max(2*wait, l.poll), max(longestPause, l.poll))
			pause.Sleep(ctx, pause.Jitter(wait))
			continue
		}
		wait = 0
		if !l.handOut(ctx, l.held.add(batch, begun), free, &busy) {
			return
		}
		if len(batch) == 0 {
			l.alarm.wait(ctx, l.poll)
			continue
		}
		limit = l.next(limit, time.Since(begun), len(batch))
	}
}

// handOut begins each item as soon as there is a place. It reports false if the loop stops first.
func (l *Loop[T]) handOut(ctx context.Context, batch []*reservation[T], free chan struct{}, busy *sync.WaitGroup) bool {
	for i, r := range batch {
		var rest func(func())
		select {
		case free <- struct{}{}:
			rest = l.work.Begin(ctx, r.item, l.held.renewed(r))
		case <-ctx.Done():
		}
		if rest == nil {
			l.work.GiveBack(ctx, l.held.drop(batch[i:]))
			return false
		}
		busy.Go(func() {
			defer l.held.drop([]*reservation[T]{r})
			rest(func() { <-free })
		})
	}
	return true
}

// renew renews all reservations, until ctx ends.
func (l *Loop[T]) renew(ctx context.Context) {
	for pause.Sleep(ctx, l.work.Renewal) {
		all, items := l.held.all()
		if len(items) == 0 {
			continue
		}
		asked := time.Now()
		if err := l.work.Renew(ctx, items); err == nil {
			l.held.renew(all, asked)
		}
	}
}

// next returns the next batch's limit, given how long the last one took.
func (l *Loop[T]) next(limit int, took time.Duration, n int) int {
	switch {
	case n < limit: // the due items may be too large for one batch
		return min(max(2*n, l.places), limit)
	case took < batchTime/2:
		return min(2*limit, batchLimit)
	case took > 2*batchTime:
		return max(limit/2, l.places)
	}
	return limit
}
