package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// ErrStaleFlood: so many deliveries of the consumer were older than what was purged that
// something is wrong, and the rest is held: see InboxConfig.MaxStale.
var ErrStaleFlood = errors.New("middleware: too many deliveries are older than what was purged")

const (
	staleWithin = time.Hour        // MaxStale counts those of so long
	askAccepted = 10 * time.Second // between questions whether an operator accepts more
	lateAfter   = 6 * time.Hour    // deliveries are old, and noted for the purge
	noteEvery   = 10 * time.Minute
)

// ages knows the deliveries of a consumer whose broker tells how old they are.
type ages struct {
	store    stores.Purger // nil: nothing is purged
	consumer stores.Consumer

	mu       sync.Mutex
	since    time.Time // when the first of stale came
	stale    int
	asked    time.Time
	accepted bool // when it was asked last
	told     bool

	noted  time.Time // when the oldest was noted
	oldest time.Time
}

// note tells the purge of an old delivery, before it is judged. That the store cannot be
// asked now is no reason not to go on: the claim will tell.
func (a *ages) note(ctx context.Context, taken time.Time, limit time.Duration) {
	if a.store == nil || taken.IsZero() || time.Since(taken) < lateAfter {
		return
	}
	a.mu.Lock()
	due := time.Since(a.noted) > noteEvery || taken.Before(a.oldest)
	if due {
		a.noted, a.oldest = time.Now(), taken
	}
	a.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = a.store.NoteLate(ctx, a.consumer, taken)
}

// admits counts a stale delivery. An error says that it is held rather than quarantined.
func (a *ages) admits(ctx context.Context, c *InboxConfig) error {
	if c.MaxStale < 0 {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); now.Sub(a.since) > staleWithin {
		a.since, a.stale, a.told = now, 0, false
	}
	if a.stale < c.MaxStale {
		a.stale++
		return nil
	}
	if a.store != nil && time.Since(a.asked) > askAccepted {
		a.asked, a.accepted = time.Now(), a.asks(ctx, c.ClaimTimeout)
	}
	switch {
	case a.accepted:
		return nil
	case !a.told:
		a.told = true
		c.Logger.Error("millpond: the intake of a consumer pauses: too many deliveries are older than what was purged, and cannot be judged",
			slog.String("consumer", a.consumer.String()), slog.Int("within the hour", a.stale),
			slog.String("to quarantine them", "run millpond purge --accept-stale "+a.consumer.String()+", or raise inbox.max_stale"),
			slog.String("so that it does not happen again", "set retention.window to more than the broker's replay horizon"))
	}
	return fmt.Errorf("%w: %d within the hour", ErrStaleFlood, a.stale)
}

func (a *ages) asks(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w, err := a.store.Watermarks(ctx)
	if err != nil {
		return false
	}
	for _, of := range w.Consumers {
		if of.Consumer == a.consumer {
			return of.StaleUntil.After(w.Now)
		}
	}
	return false
}

// AdmitsStale implements delivery.Consumer.
func (v *visit) AdmitsStale() error {
	return v.crowd.ages.admits(v.arrival.Contexts.Detached, &v.in.config)
}
