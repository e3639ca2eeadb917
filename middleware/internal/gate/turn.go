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
	shutdown context.Context //nolint:containedctx // of all waits of the delivery

	since   time.Time     // when it first had to wait
	pause   time.Duration // the last one
	due     time.Duration // until it may be asked again, as it was known last
	paused  time.Time     // when it last paused the intake, or would have
	asking  bool          // it asks for all while the intake is paused
	company company       // of the run, if it is a suspect's
}

// Arrive returns the turn of a delivery; shutdown ends its waits.
func (g *Gate) Arrive(shutdown context.Context, lane *Lane) Turn {
	return Turn{gate: g, lane: lane, shutdown: shutdown}
}

// Held is how long the delivery has been waiting, the questions in between included.
func (t *Turn) Held() time.Duration {
	if t.since.IsZero() {
		return 0
	}
	return time.Since(t.since)
}

// Next is how long to wait before it is asked again, by whoever has the message then.
func (t *Turn) Next() time.Duration { return max(t.pause, t.due) }

// NotBefore says that it is in vain to ask before due is over.
func (t *Turn) NotBefore(due time.Duration) { t.due = due }

// Enter waits while the intake is paused or too many deliveries of the consumer are held.
// It counts as being held. An error says why the delivery must be given back: ErrFull, the
// end of shutdown, or paused, if the intake is.
func (t *Turn) Enter(paused error) error {
	if t.gate.intake.paused.Load() && !t.asking && !t.awaitStore() {
		return errors.Join(paused, context.Cause(t.shutdown))
	}
	if t.asking || t.lane.hasRoom() { // those that are held wait for the one that asks
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

// Reason says why a delivery is held.
type Reason struct {
	Err   error
	Store bool                      // it says nothing about the message: others would meet it, too
	Tell  func(pause time.Duration) // is called before the pause
}

// Hold waits before the next question. It reports false when the delivery must be given
// back: it was held for as long as it may be, or the service shuts down.
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
		// To give it back now might bring it back at once, again and again.
		t.sleep(left)
		t.due = max(wait-max(left, 0), 0)
		return false
	}
	why.Tell(wait)
	// Trouble that others did not have after this one had paused them is this one's alone.
	if why.Store && (t.paused.IsZero() || !t.gate.intake.resumedSince(t.paused)) {
		t.paused = time.Now()
		t.gate.intake.pause(why.Err)
		begun := time.Now()
		if ok := t.awaitStore(); !ok || t.asking {
			return ok
		}
		// The store has answered others. The trouble may be this message's alone, so it
		// waits for as long as it would have otherwise.
		wait -= time.Since(begun)
	}
	return t.sleep(wait)
}

// Answered notes that the store has answered.
func (t *Turn) Answered() {
	t.gate.Answered()
	t.stopAsking()
}

// Alone waits until no other suspect runs: those that were only near what has ended a process
// must not be counted again and again. It reports false if the delivery must be given back
// first.
func (t *Turn) Alone() bool { return t.run(alone) }

// Beside waits until no suspect runs alone, or waits to. It reports false if the delivery
// must be given back first.
func (t *Turn) Beside() bool { return t.run(beside) }

func (t *Turn) run(how company) bool {
	if t.company != none {
		return true
	}
	t.stopAsking() // the one that runs alone may be waiting for its turn to ask
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

// begin notes that the delivery has to wait.
func (t *Turn) begin() {
	if t.since.IsZero() {
		t.since = time.Now()
	}
}

// bounded returns a context for as long as the delivery may still be held.
func (t *Turn) bounded() (context.Context, context.CancelFunc) {
	t.begin()
	return context.WithTimeout(t.shutdown, t.gate.config.Limit-t.Held())
}

// sleep sleeps as a held delivery. Others may ask meanwhile.
func (t *Turn) sleep(d time.Duration) bool {
	t.stopAsking()
	t.lane.hold()
	defer t.lane.release()
	return pause.Sleep(t.shutdown, d)
}

// awaitStore waits, as a held delivery, until the store has answered somebody or it is
// this delivery's turn to ask.
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
