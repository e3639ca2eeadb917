package outbox

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

const (
	defaultWakeInterval = 25 * time.Millisecond
	wakeTimeout         = time.Second
)

// Waker wakes relays in other processes after commits, for a program that runs no relay: give it
// to middleware.Outputs.Relay, and call Poke after a producer's commit. A relay with
// Config.WakeInterval needs no Waker. Commits do not wait for it: the database is told once per
// interval, in a transaction of its own. It is safe for concurrent use.
type Waker struct {
	store    stores.OutboxWaker
	self     int64
	log      *slog.Logger
	throttle throttle
}

// WakerConfig configures a [Waker]. The zero value is ready to use.
type WakerConfig struct {
	Interval time.Duration // between two wake-ups; 0 means 25 ms
	Logger   *slog.Logger  // nil is slog.Default
}

// NewWaker returns a waker. It does no I/O.
func NewWaker(store stores.OutboxWaker, c WakerConfig) *Waker {
	return newWaker(store, c, rand.Int64()) //nolint:gosec // it distinguishes wakers and is no secret
}

func newWaker(store stores.OutboxWaker, c WakerConfig, self int64) *Waker {
	w := &Waker{store: store, self: self, log: c.Logger}
	if w.log == nil {
		w.log = slog.Default()
	}
	w.throttle = throttle{every: cmp.Or(c.Interval, defaultWakeInterval), do: w.tell}
	return w
}

// Poke tells relays of a commit. Numbers are the numbers of outputs, if known.
func (w *Waker) Poke(numbers ...int64) { w.throttle.poke(numbers...) }

func (w *Waker) tell(least int64) {
	ctx, cancel := context.WithTimeout(context.Background(), wakeTimeout)
	defer cancel()
	if err := w.store.WakeRelays(ctx, stores.OutboxWake{Sender: w.self, Number: least}); err != nil {
		w.log.Debug("millpond: outbox: relays in other processes cannot be woken, and poll", slog.Any("error", err))
	}
}

// throttle calls a function at once, and then at most once per interval.
type throttle struct {
	every time.Duration
	do    func(least int64) // least is the lowest number; 0: unknown

	mu    sync.Mutex
	poked bool // poked since the last call
	least int64
	busy  bool // a call runs or is scheduled
	next  time.Time
}

func (t *throttle) poke(numbers ...int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range numbers {
		if t.least == 0 || n < t.least {
			t.least = n
		}
	}
	t.poked = true
	t.begin()
}

func (t *throttle) begin() {
	if t.poked && !t.busy {
		t.busy = true
		time.AfterFunc(time.Until(t.next), t.call)
	}
}

func (t *throttle) call() {
	t.mu.Lock()
	least := t.least
	t.poked, t.least, t.next = false, 0, time.Now().Add(t.every)
	t.mu.Unlock()
	t.do(least)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.busy = false
	t.begin()
}

// listen pokes the relay when other processes commit, as long as the store can report it.
func (r *Relay) listen(ctx context.Context, store stores.OutboxWaker) {
	heard := throttle{every: r.config.WakeInterval, do: func(least int64) {
		if least > 0 {
			r.desk.lower(least - 1)
		}
		if !r.desk.works() { // a busy relay reads soon anyway, in larger batches
			r.nudge()
		}
	}}
	for wait := time.Second; ; wait = min(2*wait, longestPause) {
		begun := time.Now()
		err := store.ListenOutbox(ctx, func(w stores.OutboxWake) {
			switch {
			case w.Sender == r.leases.self:
			case w.Number > 0:
				heard.poke(w.Number)
			default:
				heard.poke()
			}
		})
		if ctx.Err() != nil || errors.Is(err, errors.ErrUnsupported) {
			return
		}
		if time.Since(begun) > longestPause {
			wait = time.Second
		}
		r.config.Logger.DebugContext(ctx, "millpond: outbox: the relay is not woken by others, and polls", slog.Any("error", err))
		if !pause.Sleep(ctx, pause.Jitter(wait)) {
			return
		}
	}
}
