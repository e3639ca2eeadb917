package middleware

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// wait is the state of a delivery that is being held.
type wait struct {
	since time.Time     // when it first had to wait
	pause time.Duration // the last one
	last  error
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
	d.wait.pause = min(max(c.MinPause, 2*d.wait.pause), c.MaxPause)
	pause := jitter(d.wait.pause)
	if d.wait.held()+pause > c.Limit || d.shutdown.Err() != nil {
		return false
	}
	d.logHold(reason)
	for _, hook := range d.in.hooks.hold {
		hook.Hold(d.ctx, reason, pause)
	}
	release := d.holding.add()
	defer release()
	return sleep(d.shutdown, pause)
}

// backOff waits after a failure, longer with each one of the message that is known
// in this process or to the broker.
func (d *delivery) backOff() {
	c := &d.in.config.Backoff
	d.failures = max(d.in.failures.add(d.claim.Key), d.facts.Count)
	pause := c.Min
	for n := 1; n < d.failures && pause < c.Max; n++ {
		pause *= 2
	}
	pause = min(pause, c.Max)
	sleep(d.shutdown, jitter(pause))
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
	if d.holding.hasRoom() {
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
