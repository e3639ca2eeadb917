package gate_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/gate"
)

func newGate(c gate.Config) *gate.Gate {
	c.Limit, c.MinPause, c.MaxPause = max(c.Limit, time.Minute), 10*time.Millisecond, time.Second
	c.Max = max(c.Max, 1)
	c.Paused, c.Resumed = func(error) {}, func(time.Duration) {}
	return gate.New(c)
}

var (
	errDown = errors.New("down")
	errBusy = errors.New("somebody else has it")
)

func reason(err error, store bool) gate.Reason {
	return gate.Reason{Err: err, Store: store, Tell: func(time.Duration) {}}
}

// While the store is away one delivery asks for all, and the first answer lets all go on.
func TestOneAsksForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gate.Config{Max: 100})
		lane := g.Lane()
		var questions, through atomic.Int32
		back := time.Now().Add(10 * time.Second)
		for range 20 {
			go func() {
				turn := g.Arrive(t.Context(), lane)
				defer turn.Leave()
				for {
					if err := turn.Enter(errDown); err != nil {
						t.Error(err)
						return
					}
					questions.Add(1)
					if time.Now().After(back) {
						turn.Answered()
						through.Add(1)
						return
					}
					turn.Hold(reason(errDown, true))
				}
			}()
		}
		synctest.Wait()
		<-time.After(5 * time.Second)
		if n := questions.Load(); n > 20+20 || g.Reason() == nil {
			t.Errorf("asked %d times in 5 s; the intake is paused by %v", n, g.Reason())
		}
		<-time.After(10 * time.Second)
		if through.Load() != 20 || g.Reason() != nil {
			t.Errorf("%d of 20 are through; the intake is paused by %v", through.Load(), g.Reason())
		}
	})
}

func TestHeldDeliveriesStopTheirLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gate.Config{Max: 1})
		lane := g.Lane()
		held := g.Arrive(t.Context(), lane)
		go held.Hold(reason(errBusy, false))
		synctest.Wait()
		next := g.Arrive(t.Context(), lane)
		begun := time.Now()
		if err := next.Enter(errDown); err != nil || time.Since(begun) == 0 {
			t.Errorf("%v after %s: it did not wait for the one that is held", err, time.Since(begun))
		}
	})
}

func TestHoldingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gate.Config{Limit: time.Minute})
		turn := g.Arrive(t.Context(), g.Lane())
		for turn.Hold(reason(errBusy, false)) {
		}
		if turn.Held() != time.Minute || turn.Next() == 0 {
			t.Errorf("held for %s, next in %s", turn.Held(), turn.Next())
		}
		ctx, stop := context.WithCancel(t.Context())
		stop()
		turn = g.Arrive(ctx, g.Lane())
		if turn.Hold(reason(errBusy, false)) || turn.Held() != 0 {
			t.Error("it is held although the service stops")
		}
	})
}

func TestMessagesThatMayEndAProcessRunAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(gate.Config{})
		one, other := g.Arrive(t.Context(), g.Lane()), g.Arrive(t.Context(), g.Lane())
		first := one.Alone()
		if !first || !one.Alone() {
			t.Fatal("the first one is not alone")
		}
		time.AfterFunc(time.Second, one.Leave)
		begun := time.Now()
		if !other.Alone() || time.Since(begun) != time.Second {
			t.Errorf("the second one ran after %s", time.Since(begun))
		}
	})
}
