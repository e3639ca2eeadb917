package middleware

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// wait is the state of a delivery that is being held.
type wait struct {
	since time.Time     // when it first had to wait
	pause time.Duration // the last one
	due   time.Duration // until the next attempt may be made, as it was known last
	last  error

	paused time.Time // when this delivery last paused the intake, or would have
}

// held is how long the delivery has been waiting, the questions in between included.
func (w *wait) held() time.Duration {
	if w.since.IsZero() {
		return 0
	}
	return time.Since(w.since)
}

// hold waits before the next question, without a connection. It reports false when
// the delivery must be given back: it was held for as long as it may be, or the
// service shuts down.
func (d *delivery) hold(reason error) bool {
	c := &d.in.config.Hold
	if d.wait.since.IsZero() {
		d.wait.since = time.Now()
	}
	if d.retry != nil && errors.Is(reason, ErrInFlight) {
		return false // a worker has others to run
	}
	d.wait.pause = min(max(c.MinPause, 2*d.wait.pause), c.MaxPause)
	pause := max(jitter(d.wait.pause), d.wait.due)
	d.wait.due = 0
	if d.shutdown.Err() != nil {
		d.wait.due = pause
		return false
	}
	if left := c.Limit - d.wait.held(); pause > left {
		// To give it back now might bring it back at once, again and again.
		d.sleepHeld(left)
		d.wait.due = max(pause-max(left, 0), 0)
		return false
	}
	d.logHold(reason)
	d.in.hooks.held(d.ctx, reason, pause)
	// Trouble that others did not have after this one had paused them is this one's alone.
	if concernsStore(reason) && (d.wait.paused.IsZero() || !d.in.intake.resumedSince(d.wait.paused)) {
		d.wait.paused = time.Now()
		d.in.intake.pause(reason)
		begun := time.Now()
		if ok := d.awaitStore(); !ok || d.asking {
			return ok
		}
		// The store has answered others. The trouble may be this message's alone, so it
		// waits for as long as it would have otherwise.
		pause -= time.Since(begun)
	}
	return d.sleepHeld(pause)
}

// sleepHeld sleeps as a held delivery. Others may ask meanwhile.
func (d *delivery) sleepHeld(pause time.Duration) bool {
	d.stopAsking()
	release := d.holding.add()
	defer release()
	return sleep(d.shutdown, pause)
}

// concernsStore reports whether an error says nothing about a message: others would
// meet it, too.
func concernsStore(err error) bool {
	return errors.Is(err, stores.ErrUnavailable) || errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrSchemaNewer)
}

// awaitStore waits, as a held delivery, until the store has answered somebody or it is
// this delivery's turn to ask.
func (d *delivery) awaitStore() bool {
	d.stopAsking()
	if d.wait.since.IsZero() {
		d.wait.since = time.Now()
	}
	release := d.holding.add()
	defer release()
	ctx, cancel := context.WithTimeout(d.shutdown, d.in.config.Hold.Limit-d.wait.held())
	defer cancel()
	asking, ok := d.in.intake.wait(ctx)
	d.asking = asking
	return ok
}

// answered notes that the store has answered.
func (d *delivery) answered() {
	d.in.intake.resume()
	d.stopAsking()
}

func (d *delivery) stopAsking() {
	if d.asking {
		d.asking = false
		d.in.intake.done()
	}
}

// jitter returns a random duration between half of d and d.
func jitter(d time.Duration) time.Duration {
	if d < 2 {
		return d
	}
	return d/2 + rand.N(d/2) //nolint:gosec // spreads load, keeps no secret
}

// sleep waits for d, or until ctx ends; then it reports false.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// enter waits while too many deliveries of the consumer are held. The wait counts as
// being held.
func (d *delivery) enter() error {
	if d.in.intake.paused.Load() && !d.asking && !d.awaitStore() {
		return errors.Join(errPaused, context.Cause(d.shutdown))
	}
	if d.asking || d.holding.hasRoom() { // those that are held wait for the one that asks
		return nil
	}
	if d.wait.since.IsZero() {
		d.wait.since = time.Now()
	}
	ctx, cancel := context.WithTimeout(d.shutdown, d.in.config.Hold.Limit-d.wait.held())
	defer cancel()
	if d.holding.wait(ctx) {
		return nil
	}
	if d.shutdown.Err() != nil {
		return context.Cause(d.shutdown)
	}
	return errTooManyHeld
}

var errPaused = fmt.Errorf("middleware: %w: the intake is paused", stores.ErrUnavailable)

var errTooManyHeld = errors.New("middleware: Hold.Max deliveries were held all the time")

// holdings are the deliveries held by an inbox, by consumer: one whose messages have
// to wait does not stop another.
type holdings struct {
	limit int

	mu sync.RWMutex
	by map[stores.Consumer]*holding
}

func newHoldings(limit int) *holdings {
	return &holdings{limit: limit, by: make(map[stores.Consumer]*holding)}
}

func (h *holdings) of(c stores.Consumer) *holding {
	h.mu.RLock()
	one := h.by[c]
	h.mu.RUnlock()
	if one != nil {
		return one
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.by[c] == nil {
		h.by[c] = &holding{limit: h.limit}
	}
	return h.by[c]
}

// holding counts the held deliveries of a consumer.
type holding struct {
	limit int

	introduced atomic.Bool // its subscriber was looked at
	firsts     firsts

	mu   sync.Mutex
	held int
	room chan struct{} // closed when there is room; nil while nobody waits
}

// add counts one delivery as held until release is called.
func (h *holding) add() (release func()) {
	h.mu.Lock()
	h.held++
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.held--
		if h.held < h.limit && h.room != nil {
			close(h.room)
			h.room = nil
		}
	}
}

func (h *holding) hasRoom() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held < h.limit
}

// wait waits for room. It reports false if ctx ended before.
func (h *holding) wait(ctx context.Context) bool {
	for {
		h.mu.Lock()
		if h.held < h.limit {
			h.mu.Unlock()
			return true
		}
		if h.room == nil {
			h.room = make(chan struct{})
		}
		room := h.room
		h.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}
