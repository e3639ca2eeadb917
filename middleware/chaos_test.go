package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// chaos is a broker that redelivers, sometimes twice at once, over a store that comes
// and goes and whose commits are not always known, and handlers that fail in every way.
type chaos struct {
	t     *testing.T
	store *ledger
	in    *middleware.Inbox

	mu      sync.Mutex
	random  *rand.Rand
	end     time.Time // of the trouble
	commits map[string]int
	failed  map[string]int // runs that ended in a failure that counts
}

func (c *chaos) chance(percent int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(100) < percent && time.Now().Before(c.end)
}

func (c *chaos) pause(most time.Duration) {
	c.mu.Lock()
	d := time.Duration(c.random.Int64N(int64(most)))
	c.mu.Unlock()
	<-time.After(d)
}

// handle fails for good for every seventh message, and otherwise by chance.
func (c *chaos) handle(m *message.Message) error {
	c.pause(3 * time.Second)
	doomed := m.Metadata["doomed"] == "yes"
	if doomed || c.chance(30) {
		c.mu.Lock()
		c.failed[m.UUID]++
		kind := c.random.IntN(3)
		c.mu.Unlock()
		switch kind {
		case 0:
			panic("boom")
		case 1:
			return middleware.Contention(errors.New("conflict"))
		}
		return errors.New("boom")
	}
	return nil
}

// deliver hands a message out until it is acked.
func (c *chaos) deliver(ctx context.Context, id string, doomed bool) {
	for count := 1; ; count++ {
		facts := brokers.Delivery{Topic: "orders", Count: count, Suspect: count > 1 && c.chance(70)}
		deliveryCtx, cancel := context.WithCancel(withDelivery(ctx, facts))
		m := newMessage(deliveryCtx, id)
		if doomed {
			m.Metadata.Set("doomed", "yes")
		}
		acked := make(chan bool, 1)
		go func() {
			ack := false
			defer func() {
				_ = recover()
				acked <- ack
			}()
			_, err := c.in.Middleware(handle(c.handle))(m)
			ack = err == nil
		}()
		if c.chance(5) {
			c.pause(2 * time.Second)
			cancel() // a rebalance
		}
		ok := <-acked
		cancel()
		if ok {
			if c.store.row(id).status == 0 {
				c.t.Errorf("%s was acked and is nowhere", id)
			}
			return
		}
		<-time.After(max(givenBack(deliveryCtx).After, time.Millisecond))
	}
}

// chaosAttempt has commits whose outcome is not known, and attempts that the database
// ends.
type chaosAttempt struct {
	*ledgerAttempt

	c           *chaos
	interrupted bool
}

func (a *chaosAttempt) Interrupted() error {
	if a.interrupted {
		return errors.New("deadlock")
	}
	return nil
}

func (a *chaosAttempt) Commit(ctx context.Context) error {
	if a.c.chance(10) {
		a.interrupted = true
		_ = a.Rollback(ctx)
		return stores.ErrNotCommitted
	}
	if a.c.chance(10) {
		_ = a.Rollback(ctx)
		return stores.ErrCommitUnknown
	}
	unknown := a.c.chance(10)
	err := a.ledgerAttempt.Commit(ctx)
	if err == nil {
		a.c.mu.Lock()
		a.c.commits[a.id]++
		a.c.mu.Unlock()
		if unknown {
			return stores.ErrCommitUnknown
		}
	}
	return err
}

// Whatever happens in between: every message ends completed or failed, its effects are
// committed at most once, none is acked that is not kept, and no failure is counted that
// was none.
func TestNothingIsLostOrDoubledInChaos(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { runChaos(t, seed) })
		})
	}
}

func runChaos(t *testing.T, seed uint64) {
	t.Helper()
	c := &chaos{
		t: t, store: newLedger(), random: rand.New(rand.NewPCG(seed, 1)), end: time.Now().Add(10 * time.Minute),
		commits: make(map[string]int), failed: make(map[string]int),
	}
	var down time.Time // until then
	c.store.fault = func(call string) error {
		runtime.Gosched()
		switch {
		case call == "commit":
		case time.Now().Before(down):
			return stores.ErrUnavailable
		case c.chance(2):
			c.mu.Lock()
			defer c.mu.Unlock()
			down = time.Now().Add(time.Duration(c.random.Int64N(int64(10 * time.Second))))
			return stores.ErrUnavailable
		case c.chance(3):
			return errors.New("unexpected")
		}
		return nil
	}
	c.store.attempt = func(a stores.Attempt) stores.Attempt {
		inner, _ := a.(*ledgerAttempt)
		return &chaosAttempt{ledgerAttempt: inner, c: c}
	}
	placement := []stores.Placement{stores.PlacementParked, stores.PlacementRedelivered}[seed%2]
	c.in = newInbox(t, c.store, func(config *middleware.InboxConfig) {
		config.Hold = middleware.HoldConfig{Limit: 20 * time.Second, Max: 8}
		config.Retry = middleware.RetryPolicy{Placement: placement, MaxAttempts: 25, Backoff: middleware.BackoffConfig{Max: 30 * time.Second}}
	})
	const messages = 40
	var delivered sync.WaitGroup
	for i := range messages {
		id := fmt.Sprint(i)
		for range 1 + i%2 { // every second one is published twice
			delivered.Go(func() {
				c.pause(time.Minute)
				c.deliver(t.Context(), id, i%7 == 0)
			})
		}
	}
	worker := newInbox(t, c.store, func(config *middleware.InboxConfig) {
		config.Retry = middleware.RetryPolicy{MaxAttempts: 25, Backoff: middleware.BackoffConfig{Max: 30 * time.Second}}
	})
	work(t, worker, c.handle, func() {
		delivered.Wait()
		waitUntil(t, func() bool { return c.terminal(messages) })
	})
	for i := range messages {
		id := fmt.Sprint(i)
		r, commits, failed := c.store.row(id), c.commits[id], c.failed[id]
		switch {
		case i%7 == 0:
			if r.status != stores.StatusFailed || commits != 0 || r.failure.Attempts != 25 {
				t.Errorf("%s: %d commits, %d failed runs, %+v", id, commits, failed, r)
			}
		case r.status != stores.StatusCompleted || commits != 1:
			t.Errorf("%s: %d commits, %d failed runs, %+v", id, commits, failed, r)
		}
		if r.failure.Attempts > failed {
			t.Errorf("%s: %d attempts counted, %d have failed", id, r.failure.Attempts, failed)
		}
	}
}

func (c *chaos) terminal(messages int) bool {
	for i := range messages {
		if s := c.store.row(fmt.Sprint(i)).status; s != stores.StatusCompleted && s != stores.StatusFailed {
			return false
		}
	}
	return true
}
