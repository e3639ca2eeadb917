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

// ErrStaleFlood: too many deliveries of the consumer were older than the last purge, which points
// to a mistake. Further ones are held: see InboxConfig.MaxStale.
var ErrStaleFlood = errors.New("middleware: too many deliveries are older than the last purge")

const (
	staleWithin = time.Hour        // the time over which MaxStale counts
	askAccepted = 10 * time.Second // between checks whether an operator accepts more
	noteEvery   = 10 * time.Minute
	readAgain   = time.Second // less than the time between an announcement and its purge
)

// ages judges the age of a consumer's deliveries, if the broker tells when each was published.
type ages struct {
	store    stores.Purger // nil: nothing is purged
	consumer stores.Consumer

	mu    sync.Mutex
	since time.Time // when the first of stale came
	stale int
	flood bool // no operator has accepted it yet

	asked time.Time // when the fields below were read
	mark  stores.Watermark
	now   time.Time // by the database's clock

	noted  time.Time // when the oldest was noted
	oldest time.Time
}

// note reports an old delivery to the purge before it is judged. An error of the store is
// ignored, because the claim will meet it, too.
func (a *ages) note(ctx context.Context, taken time.Time, limit time.Duration) {
	if a.store == nil || taken.IsZero() || time.Since(taken) < stores.LateAfter {
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
	if a.store.NoteLate(ctx, a.consumer, taken) != nil { // the next delivery tries again
		a.mu.Lock()
		a.noted, a.oldest = time.Time{}, time.Time{}
		a.mu.Unlock()
	}
}

// admits counts a stale delivery. With an error it is held instead of quarantined.
func (a *ages) admits(ctx context.Context, c *InboxConfig) error {
	if c.MaxStale < 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.ClaimTimeout) // which includes the wait for others that read
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := time.Now(); !a.flood && now.Sub(a.since) > staleWithin {
		a.since, a.stale = now, 0
	}
	if a.stale < c.MaxStale {
		a.stale++
		return nil
	}
	if a.store != nil && a.read(ctx, askAccepted) == nil && a.mark.StaleUntil.After(a.now) {
		a.flood = false
		return nil
	}
	if !a.flood {
		a.flood = true
		c.Logger.Error("millpond: the intake of a consumer pauses: too many deliveries are older than the last purge, and cannot be judged",
			slog.String("consumer", a.consumer.String()), slog.Int("within the hour", a.stale),
			slog.String("to quarantine them", "run millpond purge --accept-stale "+a.consumer.String()+", or raise inbox.max_stale"),
			slog.String("so that it does not happen again", "set retention.window to more than the broker's replay horizon"))
	}
	return fmt.Errorf("%w: %d within an hour", ErrStaleFlood, a.stale)
}

// forgotten returns the purge's watermark if it is past taken, so that the row of a message that
// old may be gone; else zero.
func (a *ages) forgotten(ctx context.Context, taken time.Time, limit time.Duration) (through time.Time, err error) {
	if a.store == nil || taken.IsZero() {
		return through, nil
	}
	ctx, cancel := context.WithTimeout(ctx, limit) // which includes the wait for others that read
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if err = a.read(ctx, readAgain); err == nil && a.mark.PurgedThrough.After(taken) {
		through = a.mark.PurgedThrough
	}
	return through, err
}

// read reads the watermark, unless it was read recently. The caller holds mu.
func (a *ages) read(ctx context.Context, lately time.Duration) error {
	begun := time.Now()
	if begun.Sub(a.asked) < lately {
		return nil
	}
	w, err := a.store.Watermarks(ctx)
	if err != nil {
		return err
	}
	a.asked, a.now, a.mark = begun, w.Now, stores.Watermark{}
	for _, of := range w.Consumers {
		if of.Consumer == a.consumer {
			a.mark = of
		}
	}
	return nil
}

// AdmitsStale implements delivery.Consumer.
func (v *visit) AdmitsStale() error {
	return v.crowd.ages.admits(v.arrival.Contexts.Detached, &v.in.config)
}

// Forgotten implements delivery.Consumer.
func (v *visit) Forgotten(taken time.Time) (time.Time, error) {
	return v.crowd.ages.forgotten(v.arrival.Contexts.Detached, taken, v.in.config.ClaimTimeout)
}
