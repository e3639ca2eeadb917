package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermill "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// deliverUntil delivers a message again and again as long as it comes back, and returns
// how often.
func deliverUntil(t *testing.T, h message.HandlerFunc, most int) (deliveries int) {
	t.Helper()
	for deliveries < most {
		deliveries++
		if _, err := h(newMessage(t.Context(), "a")); err == nil {
			return deliveries
		}
	}
	return deliveries
}

// A Timeout around the inbox ends the message's context in the middle of each run.
func TestTimeoutAroundTheInboxIsNoShutdown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		attempt  func() stores.Attempt
		class    stores.Class
		attempts int
	}{
		"canceled":    {func() stores.Attempt { return &scriptedAttempt{} }, stores.ClassTimeout, 1},
		"interrupted": {func() stores.Attempt { return &interruptedAttempt{} }, stores.ClassInterrupted, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := storeOfAll(test.attempt)
				in := newInbox(t, store)
				h := watermill.Timeout(time.Second)(in.Middleware(handle(func(*message.Message) error {
					<-time.After(2 * time.Second)
					return context.Canceled
				})))
				if n := deliverUntil(t, h, 10); n != 1 || len(store.recorded) != 1 {
					t.Fatalf("%d deliveries, recorded %+v", n, store.recorded)
				}
				if f := store.recorded[0]; f.Class != test.class || f.Attempts != test.attempts || f.Attempts+f.Uncounted != 1 || f.Placement != stores.PlacementParked {
					t.Errorf("recorded %+v", f)
				}
			})
		})
	}
}

func TestUnknownCommitUnderATimeoutIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := storeOfAll(func() stores.Attempt { return &scriptedAttempt{commit: stores.ErrCommitUnknown} })
		store.resolve = func() (bool, error) { return false, nil }
		h := watermill.Timeout(time.Second)(newInbox(t, store).Middleware(handle(func(*message.Message) error {
			<-time.After(2 * time.Second)
			return nil
		})))
		if n := deliverUntil(t, h, 10); n != 1 || len(store.recorded) != 1 || store.recorded[0].Class != stores.ClassUnknown {
			t.Errorf("%d deliveries, recorded %+v", n, store.recorded)
		}
	})
}

// Whatever cancels the context of each delivery, it has an end.
func TestHandlerThatIsCanceledAgainAndAgainFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, redelivered, func(c *middleware.InboxConfig) { c.Retry.MaxUncounted = 5 })
		h := in.Middleware(handle(func(*message.Message) error { return nil }))
		runs := 0
		poison := func(m *message.Message) ([]*message.Message, error) {
			ctx, cancel := context.WithCancel(m.Context())
			defer cancel()
			m.SetContext(ctx)
			return in.Middleware(handle(func(*message.Message) error {
				runs++
				cancel()
				return errors.Join(errors.New("gave up"), context.Canceled)
			}))(m)
		}
		deliverUntil(t, poison, 1000)
		if r := store.row("a"); r.status != stores.StatusFailed || r.failure.Attempts != 0 || runs != 6 {
			t.Errorf("%d runs, %+v\n%s", runs, r.failure, store.story())
		}
		if _, err := h(newMessage(t.Context(), "another")); err != nil {
			t.Error(err)
		}
	})
}
