package middleware

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
)

// turns lets the deliveries of one *message.Message pass one after the other. A middleware around
// the inbox may call it again while its first call still runs, such as a retry around a timeout.
// An inbox inside the inbox has turns of its own.
//
// The running delivery changes the message and its context, and restores them at its end. So the
// next delivery waits before it reads anything of the message.
type turns struct {
	mu sync.Mutex
	of map[*message.Message]turn
}

// turn is the turn of one delivery.
type turn struct {
	arrived context.Context //nolint:containedctx // the message's; a second delivery must not read it from the message
	over    chan struct{}   // nil unless another delivery waits
}

func newTurns() *turns { return &turns{of: make(map[*message.Message]turn)} }

// take waits for the message's turn, at most as long as a delivery may be held or until the
// service shuts down. The caller ends its turn with end.
func (t *turns) take(msg *message.Message, limit time.Duration) error {
	var begun time.Time
	for {
		t.mu.Lock()
		running, taken := t.of[msg]
		if !taken {
			t.of[msg] = turn{arrived: msg.Context()}
			t.mu.Unlock()
			return nil
		}
		if running.over == nil {
			running.over = make(chan struct{})
			t.of[msg] = running
		}
		t.mu.Unlock()
		if begun.IsZero() {
			begun = time.Now()
		}
		if err := running.await(msg, limit-time.Since(begun)); err != nil {
			return &delivery.NotNowError{Cause: err, Held: time.Since(begun)}
		}
	}
}

// end ends the turn of the delivery that has it.
func (t *turns) end(msg *message.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if over := t.of[msg].over; over != nil {
		close(over)
	}
	delete(t.of, msg)
}

// await returns why the wait for the running delivery ended early, or nil.
func (r turn) await(msg *message.Message, limit time.Duration) error {
	shutdown, _ := ownContext(r.arrived, msg)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-r.over:
		return nil
	case <-timer.C:
		return ErrInFlight
	case <-shutdown.Done():
		return errors.Join(ErrInFlight, context.Cause(shutdown))
	}
}
