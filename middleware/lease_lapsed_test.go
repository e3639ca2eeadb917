package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// The messages of a process that has died are taken over side by side, as many as a worker
// runs. Those that were there when a second one died are not.
func TestLapsedLeasesAreTakenOverTogether(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		class               stores.Class
		attempts, uncounted int
		most                int32
	}{
		"one process":           {stores.ClassInterrupted, 1, 0, 2},
		"two processes":         {stores.ClassInterrupted, 1, 1, 1},
		"alone in the last one": {stores.ClassCrash, 2, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newLedger()
				var ids []string
				for i := range 6 {
					f := leasedBefore(fmt.Sprint(i), test.attempts)
					f.Placement, f.Class, f.Uncounted, f.Content, f.DueIn = stores.PlacementParked, test.class, test.uncounted, nil, 0
					store.put(f)
					ids = append(ids, fmt.Sprint(i))
				}
				var running, most, runs atomic.Int32
				in := newInbox(t, store, leasing(), func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 5 })
				work(t, in, func(*message.Message) error {
					most.Store(max(most.Load(), running.Add(1)))
					runs.Add(1)
					<-time.After(10 * time.Second)
					running.Add(-1)
					return nil
				}, func() {
					waitUntil(t, func() bool {
						for _, id := range ids {
							if store.row(id).status != stores.StatusCompleted {
								return false
							}
						}
						return true
					})
				}, func(c *middleware.RetryWorkerConfig) { c.Concurrency = 2 })
				if most.Load() != test.most || runs.Load() != 6 {
					t.Errorf("%d ran at a time, of %d runs, want %d\n%s", most.Load(), runs.Load(), test.most, store.story())
				}
			})
		})
	}
}

// A message that ends its process each time fails, and those beside it lose no attempt.
func TestPoisonUnderALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		in := newInbox(t, store, leasing(), end.configure, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 3 })
		begun := 0
		deliver := func(id string, died bool) {
			// What dies leaves its row as it was when it began.
			var left ledgerRow
			_, err := in.Middleware(handle(func(*message.Message) error {
				begun++
				left = *store.rows[id]
				return errors.New("odd")
			}))(newMessage(t.Context(), id))
			if err != nil {
				t.Fatal(err)
			}
			if died && left.number != 0 {
				store.rows[id] = &left
			}
		}
		for range 6 {
			deliver("poison", true)
		}
		if r := store.row("poison"); begun != 4 || r.status != stores.StatusFailed || r.failure.Class != stores.ClassCrash {
			t.Errorf("%d processes have died: %+v", begun, r)
		}
		deliver("innocent", true)
		deliver("innocent", true)
		deliver("innocent", false)
		if r := store.row("innocent"); r.failure.Attempts != 1 {
			t.Errorf("%+v\n%s", r, store.story())
		}
	})
}

// A message that waits to run alone is not run when its key may be forgotten by then.
func TestKeyIsForgottenWhileAnAttemptWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lifetime = time.Hour
		store, end := newLedger(), &ends{}
		for _, id := range []string{"first", "second"} {
			f := leasedBefore(id, 2)
			f.Class, f.DueIn = stores.ClassCrash, 0
			store.put(f)
		}
		store.rows["second"].first = time.Now().Add(time.Minute + 20*time.Second - lifetime)
		var ran []string
		handler := newInbox(t, store, leasing(func(l *middleware.LeaseConfig) { l.KeyLifetime = lifetime }), end.configure).Middleware(handle(func(m *message.Message) error {
			ran = append(ran, m.UUID)
			<-time.After(40 * time.Second)
			return nil
		}))
		over := make(chan error)
		for _, id := range []string{"first", "second"} {
			go func() {
				_, err := handler(newMessage(t.Context(), id))
				over <- err
			}()
			synctest.Wait()
		}
		for range 2 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		if r := store.row("second"); len(ran) != 1 || r.status != stores.StatusFailed || r.failure.Class != stores.ClassUnconfirmed {
			t.Errorf("%v have run, %+v\n%s", ran, r, store.story())
		}
	})
}

// What a message has waited before its first attempt, in quarantine perhaps, does not make its key
// older. Nor does it where a worker has to decode it, and counts the attempt before it is released
// to the inbox.
func TestKeyIsNewWhenTheFirstAttemptBegins(t *testing.T) {
	t.Parallel()
	plain := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil }
	for name, change := range map[string]func(store *ledger, id string){
		"parked":  func(*ledger, string) {},
		"decoded": func(store *ledger, id string) { store.rows[id].failure.Content.Codec = "plain" },
		"a suspect": func(store *ledger, id string) {
			store.rows[id].failure.Content.Codec, store.rows[id].reserved = "plain", true
		},
	} {
		for _, released := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, released %t", name, released), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, runs, id := newLedger(), 0, "a"
					if released {
						store.quarantined = []stores.Quarantined{{
							Consumer: stores.Consumer{Service: "inventory", Handler: "stock"}, Reason: stores.ReasonAckedEarly, UUID: "a", Payload: []byte("payload of a"), Facts: stores.Facts{RanAs: []byte("u:a")},
						}}
						id = store.letOut()[0]
					} else {
						store.put(failedBefore("a", stores.PlacementParked, 0))
					}
					store.rows[id].first = time.Now().Add(-48 * time.Hour)
					change(store, id)
					in := newInbox(t, store, leasing(), func(c *middleware.InboxConfig) {
						c.Keep.Codec = &middleware.Codec{Name: "plain", Encode: plain, Decode: plain}
					})
					work(t, in, func(*message.Message) error {
						if runs++; runs == 1 {
							return middleware.Contention(errors.New("odd"))
						}
						return nil
					}, func() {
						waitUntil(t, func() bool { return store.row(id).status != stores.StatusPending })
					})
					if r := store.row(id); runs != 2 || r.status != stores.StatusCompleted {
						t.Errorf("%d runs, %+v\n%s", runs, r, store.story())
					}
				})
			})
		}
	}
}
