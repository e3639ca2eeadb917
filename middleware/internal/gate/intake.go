package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// intake stands still while the store cannot be asked: one delivery at a time goes on
// asking, with growing pauses, and the others wait for its answer. So a store that comes
// back is not met by all of them at once, and one that is away is not asked by each.
type intake struct {
	config Config

	paused atomic.Bool
	probe  chan struct{} // full while a delivery has the asking

	mu      sync.Mutex
	news    []func() // that are not told yet
	telling bool
	open    chan struct{} // closed when the intake resumes; nil unless it is paused
	since   time.Time
	why     error // it is paused
	resumed time.Time
	last    time.Duration // pause between questions
	next    time.Time     // of the next question, whoever asks it; zero: not decided yet
}

func newIntake(c Config) *intake {
	return &intake{config: c, probe: make(chan struct{}, 1)}
}

// pause stops the intake for a reason, unless it stands still already.
func (i *intake) pause(reason error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open != nil {
		i.why = reason
		return
	}
	now := time.Now()
	if now.Sub(i.resumed) > 2*i.config.MaxPause { // a store that only seems to be back is not asked more often for that
		i.last = 0
	}
	i.open, i.since, i.next, i.why = make(chan struct{}), now, time.Time{}, reason
	i.paused.Store(true)
	i.tell(func() { i.config.Paused(reason) })
}

// resume lets everybody ask again: the store has answered.
func (i *intake) resume() {
	if !i.paused.Load() {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open == nil {
		return
	}
	close(i.open)
	i.open, i.why = nil, nil
	i.paused.Store(false)
	i.resumed = time.Now()
	stood := i.resumed.Sub(i.since)
	i.tell(func() { i.config.Resumed(stood) })
}

// tell calls one function after the other, without the lock that it is called with: they
// may be the program's, and ask the intake.
func (i *intake) tell(news func()) {
	i.news = append(i.news, news)
	if i.telling {
		return
	}
	i.telling = true
	defer func() { i.telling = false }()
	for len(i.news) > 0 {
		next := i.news[0]
		i.news = i.news[1:]
		func() {
			i.mu.Unlock()
			defer i.mu.Lock()
			next()
		}()
	}
}

// reason returns why the intake is paused, nil if it is not.
func (i *intake) reason() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.why
}

// resumedSince reports whether the store has answered somebody since t.
func (i *intake) resumedSince(t time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.resumed.After(t)
}

// wait returns when the intake is open, or when it is this caller's turn to ask; it
// then ends its turn with done, so that no single message's trouble keeps the others
// from asking. ok is false if ctx ended before.
func (i *intake) wait(ctx context.Context) (asking, ok bool) {
	i.mu.Lock()
	open := i.open
	i.mu.Unlock()
	if open == nil {
		return false, true
	}
	select {
	case <-open:
		return false, true
	case i.probe <- struct{}{}:
	case <-ctx.Done():
		return false, false
	}
	timer := time.NewTimer(time.Until(i.nextQuestion()))
	defer timer.Stop()
	select {
	case <-timer.C:
		i.asks()
		return true, true
	case <-open:
		ok = true
	case <-ctx.Done():
	}
	i.done()
	return false, ok
}

// nextQuestion is the same for all that ask in vain for their turn: deliveries that may
// be held for less than a pause must not begin it anew each.
func (i *intake) nextQuestion() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.next.IsZero() {
		i.last = min(max(i.config.MinPause, 2*i.last), i.config.MaxPause)
		i.next = time.Now().Add(pause.Jitter(i.last))
	}
	return i.next
}

func (i *intake) asks() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.next = time.Time{}
}

func (i *intake) done() { <-i.probe }
