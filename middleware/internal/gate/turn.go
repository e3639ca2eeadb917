package gate

import (
	"context"
	"errors"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
)

// Turn is one delivery at the gate. It belongs to the delivery's goroutine.
type Turn struct {
	gate     *Gate
	lane     *Lane
	shutdown context.Context //nolint:containedctx // for all waits of the delivery

	since   time.Time     // when it first had to wait
	pause   time.Duration // the last one
	due     time.Duration // the pause until it is due, as last known
	paused  time.Time     // when it last paused the intake, or would have
	asking  bool          // it has the turn to ask while the intake is paused
	company company       // of the run, if it is a suspect
}

// Arrive returns a delivery's turn; shutdown ends its waits.
func (g *Gate) Arrive(shutdown context.Context, lane *Lane) Turn {
	return Turn{gate: g, lane: lane, shutdown: shutdown}
}

// Held returns how long the delivery has been waiting, with the claims in between.
func (t *Turn) Held() time.Duration {
	if !t.Waited() {
		return 0
	}
	return time.Since(t.since)
}

// Waited reports whether the delivery has had to wait.
func (t *Turn) Waited() bool { return !t.since.IsZero() }

// Next returns the pause until the next claim, in this process or after a redelivery.
func (t *Turn) Next() time.Duration { return max(t.pause, t.due) }

// NotBefore says that a claim is useless before due has passed.
func (t *Turn) NotBefore(due time.Duration) { t.due = due }

// Enter waits while the intake is paused or too many of the consumer's deliveries are held. The
// wait counts as being held. An error says why the delivery must be given back: ErrFull, the end of
// shutdown, or paused if the intake is paused.
func (t *Turn) Enter(paused error) error {
	if t.gate.intake.paused.Load() && !t.asking && !t.awaitStore() {
		return errors.Join(paused, context.Cause(t.shutdown))
	}
	if t.asking || t.lane.hasRoom() { // held deliveries wait for the one that asks
		return nil
	}
	ctx, cancel := t.bounded()
	defer cancel()
	if t.lane.wait(ctx) {
		return nil
	}
	if t.shutdown.Err() != nil {
		return context.Cause(t.shutdown)
	}
	return ErrFull
}

// Reason describes why a delivery is held.
type Reason struct {
	Err   error
	Store bool                      // the reason would also stop other deliveries
	Tell  func(pause time.Duration) // called before the pause
}

// Hold waits before the next claim. It reports false if the delivery must be given back: it was
// held for the limit, or the service shuts down.
func (t *Turn) Hold(why Reason) bool {
	c := &t.gate.config
	t.begin()
	t.pause = min(max(c.MinPause, 2*t.pause), c.MaxPause)
	wait := max(pause.Jitter(t.pause), t.due)
	t.due = 0
	if t.shutdown.Err() != nil {
		t.due = wait
		return false
	}
	if left := c.Limit - t.Held(); wait > left {
		// A delivery given back earlier might come back at once, again and again.
		t.sleep(left)
		t.due = max(wait-max(left, 0), 0)
		return false
	}
	why.Tell(wait)
	// If others had no trouble after this one paused them, the trouble is only about this message.
	if why.Store && (t.paused.IsZero() || !t.gate.intake.resumedSince(t.paused)) {
		t.paused = time.Now()
		t.gate.intake.pause(why.Err)
		begun := time.Now()
		if ok := t.awaitStore(); !ok || t.asking {
			return ok
		}
		// The store has answered others. The trouble may be only about this message, so it waits
		// for the rest of its normal pause.
		wait -= time.Since(begun)
	}
	return t.sleep(wait)
}

// Outlast keeps later waits from ending at shutdown.
func (t *Turn) Outlast() { t.shutdown = context.WithoutCancel(t.shutdown) }

// Answered notes that the store answered.
func (t *Turn) Answered() {
	t.gate.Answered()
	t.stopAsking()
}

// Alone waits until no other suspect runs, so that messages that merely ran beside the culprit are
// not counted again and again. It reports false if the delivery must be given back first.
func (t *Turn) Alone() bool { return t.run(alone) }

// Beside waits until no suspect runs alone or waits to do so. It reports false if the delivery must
// be given back first.
func (t *Turn) Beside() bool { return t.run(beside) }

func (t *Turn) run(how company) bool {
	if t.company != none {
		return true
	}
	t.stopAsking() // the one that runs alone may be waiting to ask
	if !t.gate.ward.try(how) {
		ctx, cancel := t.bounded()
		defer cancel()
		if !t.gate.ward.enter(ctx, how) {
			return false
		}
	}
	t.company = how
	return true
}

// Together ends Alone and Beside.
func (t *Turn) Together() {
	if t.company != none {
		t.gate.ward.leave(t.company)
		t.company = none
	}
}

// Leave ends the delivery's time at the gate.
func (t *Turn) Leave() {
	t.stopAsking()
	t.Together()
}

func (t *Turn) stopAsking() {
	if t.asking {
		t.asking = false
		t.gate.intake.done()
	}
}

// begin notes when the delivery first had to wait.
func (t *Turn) begin() {
	if !t.Waited() {
		t.since = time.Now()
	}
}

// bounded returns a context that ends when the delivery may no longer be held.
func (t *Turn) bounded() (context.Context, context.CancelFunc) {
	t.begin()
	return context.WithTimeout(t.shutdown, t.gate.config.Limit-t.Held())
}

// sleep pauses a held delivery. Others may ask meanwhile.
func (t *Turn) sleep(d time.Duration) bool {
	t.stopAsking()
	t.lane.hold()
	defer t.lane.release()
	return pause.Sleep(t.shutdown, d)
}

// awaitStore waits, as a held delivery, until the store has answered another delivery or it is this
// delivery's turn to ask.
func (t *Turn) awaitStore() bool {
	t.stopAsking()
	ctx, cancel := t.bounded()
	defer cancel()
	t.lane.hold()
	defer t.lane.release()
	asking, ok := t.gate.intake.wait(ctx)
	t.asking = asking
	return ok
}
