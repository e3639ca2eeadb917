package middleware_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// A message was parked under the configuration of yesterday. Today's has another list of
// headers, or another key, and nobody has touched the payload.
func TestParkedMessageIsRunAgainUnderAnotherFingerprintConfiguration(t *testing.T) {
	t.Parallel()
	for name, today := range map[string]func(*middleware.InboxConfig){
		"header": func(c *middleware.InboxConfig) { c.Fingerprint.Headers = []string{"event_type"} },
		"key": func(c *middleware.InboxConfig) {
			c.Fingerprint.Key = stores.NewFingerprintKey(2, []byte("a new secret"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs := newLedger(), 0
				f := failedBefore("a", stores.PlacementParked, 1)
				f.Fingerprint = stores.NewFingerprint(stores.FingerprintKey{}, []byte("payload of a"))
				store.put(f)
				store.attempt = func(a stores.Attempt) stores.Attempt {
					if runs < 2 {
						return interruptedLedgerAttempt{a}
					}
					return a
				}
				work(t, newInbox(t, store, today), func(*message.Message) error {
					if runs++; runs < 3 {
						return errors.New("could not serialize access")
					}
					return nil
				}, func() { <-time.After(time.Minute) })
				if r := store.row("a"); r.status != stores.StatusCompleted || runs != 3 || store.calls("record") != 0 {
					t.Errorf("%d runs, %+v\n%s", runs, r.failure, store.story())
				}
			})
		})
	}
}

// It is a worker's handler that writes over the bytes this time.
func TestParkedMessageChangedInPlaceIsNotRunOnThat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		store.put(failedBefore("a", stores.PlacementParked, 1))
		work(t, newInbox(t, store), inPlace(func(*message.Message) error {
			runs++
			return middleware.Contention(errors.New("could not serialize access"))
		}), func() { <-time.After(500 * time.Millisecond) })
		r := store.row("a")
		if runs != 1 || r.status != stores.StatusPending || r.failure.Attempts != 2 {
			t.Errorf("%d runs, %+v", runs, r.failure)
		}
	})
}
