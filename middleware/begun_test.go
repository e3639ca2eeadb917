package middleware_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
)

// Two suspect deliveries of one message at once: the one that comes second waits for the
// first, and not for as long as it would if that had ended its process.
func TestSuspectDuplicateWaitsNoLongerThanTheHandlerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.CacheSize = -1 })
		runs := 0
		h := in.Middleware(handle(func(*message.Message) error {
			runs++
			<-time.After(30 * time.Millisecond)
			return nil
		}))
		start, results := time.Now(), make(chan error)
		for range 4 {
			go func() {
				_, err := h(newMessage(withDelivery(t.Context(), brokers.Delivery{Suspect: true}), "a"))
				results <- err
			}()
			synctest.Wait()
		}
		for range 4 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(start); runs != 1 || took > time.Second {
			t.Errorf("%d runs in %s:\n%s", runs, took, store.story())
		}
	})
}
