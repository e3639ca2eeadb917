package loop

import (
	"context"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// alarm wakes one sleeper at the earliest time that was set.
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
