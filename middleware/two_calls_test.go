package middleware_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

var errGivenUp = errors.New("given up")

// givingUp goes on without its handler after a second, and lets it run.
func givingUp(next message.HandlerFunc) message.HandlerFunc {
	return func(m *message.Message) ([]*message.Message, error) {
		ended := make(chan error, 1)
		go func() { _, err := next(m); ended <- err }()
		select {
		case err := <-ended:
			return nil, err
		case <-time.After(time.Second):
			return nil, errGivenUp
		}
	}
}

// A middleware around the inbox calls it again while its first call still runs. What that
// makes of the message is over before the second one looks at it.
func TestTwoCallsAtOnceOnOneMessageAreTwoDeliveries(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first error
		want  []middleware.Result
	}{
		"the first commits": {want: []middleware.Result{middleware.ResultCompleted, middleware.ResultDuplicate}},
		"the first fails":   {first: errors.New("boom"), want: []middleware.Result{middleware.ResultParked, middleware.ResultParked}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, ends := newLedger(), newResults()
				in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hooks = []middleware.Hook{ends} })
				var runs atomic.Int32
				inbox := in.Middleware(handle(func(m *message.Message) error {
					runs.Add(1)
					m.UUID, m.Payload = "changed", nil
					m.Metadata.Set("changed", "yes")
					<-time.After(5 * time.Second)
					return test.first
				}))
				retry := watermillmiddleware.Retry{MaxRetries: 10, InitialInterval: time.Millisecond}
				if _, err := retry.Middleware(givingUp(inbox))(newMessage(t.Context(), "a")); err != nil {
					t.Error(err)
				}
				if got := []middleware.Result{ends.next(t), ends.next(t)}; !slices.Equal(got, test.want) || runs.Load() != 1 {
					t.Errorf("%d runs, ended as %v, want %v\n%s", runs.Load(), got, test.want, store.story())
				}
			})
		})
	}
}

// Hedged calls have nothing in common but the message.
func TestHedgedCallsShareNothingButTheMessage(t *testing.T) {
	t.Parallel()
	bare := func(next message.HandlerFunc) message.HandlerFunc { return next }
	for name, around := range map[string]message.HandlerMiddleware{"bare": bare, "with Arrival": middleware.Arrival} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newLedger()
			var runs atomic.Int32
			inbox := around(newInbox(t, store).Middleware(handle(func(m *message.Message) error {
				runs.Add(1)
				m.Metadata.Set("changed", "yes")
				return m.Context().Err()
			})))
			for range 50 {
				m := newMessage(t.Context(), watermill.NewUUID())
				var calls sync.WaitGroup
				for range 3 {
					calls.Go(func() {
						if _, err := inbox(m); err != nil {
							t.Error(err)
						}
					})
				}
				calls.Wait()
			}
			if runs.Load() != 50 || len(store.quarantined) != 0 {
				t.Errorf("%d runs of 50 messages, %d in quarantine", runs.Load(), len(store.quarantined))
			}
		})
	}
}

// The second call does not wait for ever, and touches nothing of the message.
func TestSecondCallOnOneMessageIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, stops := range map[string]bool{"after Hold.Limit": false, "at the shutdown": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs := newLedger(), 0
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hold.Limit = 10 * time.Second })
				inbox := in.Middleware(handle(func(*message.Message) error {
					runs++
					<-time.After(20 * time.Second)
					return nil
				}))
				m := newMessage(ctx, "a")
				first := make(chan error, 1)
				go func() { _, err := inbox(m); first <- err }()
				synctest.Wait()
				if stops {
					time.AfterFunc(time.Second, stop)
				}
				begun := time.Now()
				_, err := inbox(m)
				held := time.Since(begun)
				if !errors.Is(err, middleware.ErrNotNow) || !errors.Is(err, middleware.ErrInFlight) || stops != errors.Is(err, context.Canceled) {
					t.Errorf("the second call: %v", err)
				}
				if want := map[bool]time.Duration{false: 10 * time.Second, true: time.Second}[stops]; held != want {
					t.Errorf("it waited %s, want %s", held, want)
				}
				if err := <-first; err != nil || runs != 1 || store.row("a").status != stores.StatusCompleted {
					t.Errorf("the first call: %v, %d runs\n%s", err, runs, store.story())
				}
			})
		})
	}
}
