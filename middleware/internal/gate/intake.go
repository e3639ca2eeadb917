package gate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// intake pauses while the store does not answer: one delivery at a time asks, with growing pauses,
// and the others wait for its answer. So a store that is down does not get a question from each of
// them, and one that comes back does not get all at once.
type intake struct {
	config Config

	paused atomic.Bool
	probe  chan struct{} // full while a delivery has the turn to ask

	mu      sync.Mutex
	news    []func() // functions still to be called
	telling bool
	open    chan struct{} // closed when the intake resumes; nil unless it is paused
	since   time.Time
	why     error // why it is paused
	resumed time.Time
	last    time.Duration // pause between claims
	next    time.Time     // of the next claim, whoever makes it; zero: not decided yet
}

func newIntake(c Config) *intake {
	return &intake{config: c, probe: make(chan struct{}, 1)}
}

// pause stops the intake for a reason, unless it is already stopped.
func (i *intake) pause(reason error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open != nil {
		i.why = reason
		return
	}
	now := time.Now()
	if now.Sub(i.resumed) > 2*i.config.MaxPause { // a store that only seems to be back does not reset the pauses
		i.last = 0
	}
	i.open, i.since, i.next, i.why = make(chan struct{}), now, time.Time{}, reason
	i.paused.Store(true)
	i.tell(func() { i.config.Paused(reason) })
}

// resume opens the intake after the store answered.
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

// tell calls the functions one after the other. It releases the lock meanwhile, because they may be
// the program's and call the intake.
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

// reason returns why the intake is paused, or nil.
func (i *intake) reason() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.why
}

// resumedSince reports whether the store has answered a delivery since t.
func (i *intake) resumedSince(t time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.resumed.After(t)
}

// wait returns when the intake is open, or when it is this caller's turn to ask. Then the caller
// ends its turn with done, so that trouble with one message does not keep the others from asking.
// ok is false if ctx ended first.
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

// nextQuestion is shared by all that wait for a turn: otherwise each delivery with a hold limit
// shorter than the pause would begin it again.
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
