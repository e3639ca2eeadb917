package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Whatever a handler says whose lease was lost under its hands, its effect may have happened.
func TestHandlerThatHasLostItsLeaseIsNotRunAgainSilently(t *testing.T) {
	t.Parallel()
	for name, says := range map[string]func(ctx context.Context) error{
		"the end of its context": func(ctx context.Context) error { return fmt.Errorf("provider: %w", ctx.Err()) },
		"its cause":              context.Cause,
		"something else":         func(context.Context) error { return errors.New("boom") },
	} {
		for _, stop := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stop %t", name, stop), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, end := newLedger(), &ends{}
					lease := leasing()
					if stop {
						lease = leasing(stopping)
					}
					runs := 0
					handler := newInbox(t, store, lease, end.configure).Middleware(handle(func(m *message.Message) error {
						if runs++; runs > 1 {
							return nil
						}
						defer store.failing("extend")()
						<-m.Context().Done()
						return says(m.Context())
					}))
					if _, err := handler(newMessage(t.Context(), "a")); err != nil {
						t.Fatal(err)
					}
					want := stores.ClassTimeout
					if stop {
						want = stores.ClassUnconfirmed
					}
					if e := end.last(); runs != 1 || e.Class != want || e.Final != stop || e.Attempts != 1 {
						t.Errorf("%d runs, then %+v", runs, e)
					}
				})
			})
		}
	}
}

// A middleware around the inbox with a deadline says nothing of the effect either.
func TestOuterDeadlineUnderALeaseIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		handler := newInbox(t, store, leasing(stopping), end.configure).Middleware(handle(func(*message.Message) error {
			<-time.After(2 * time.Second)
			return context.Canceled // of the provider's client
		}))
		if _, err := handler(newMessage(ctx, "a")); err != nil || end.last().Class != stores.ClassUnconfirmed || !end.last().Final {
			t.Errorf("%v, %+v", err, end.last())
		}
	})
}

// While a row is locked its version does not change: what is known of the run is recorded
// later, and the handler does not run again meanwhile.
func TestFailureUnderALeaseIsRecordedWhenItsRowIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		locked := func(is bool) {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.inFlight["a"] = is
		}
		runs := 0
		handler := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(*message.Message) error {
			if runs++; runs > 1 {
				return nil
			}
			locked(true)
			time.AfterFunc(5*time.Second, func() { locked(false) })
			return middleware.Unconfirmed(errors.New("boom"))
		}))
		if _, err := handler(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		if e := end.last(); runs != 1 || e.Class != stores.ClassUnconfirmed || store.row("a").status != stores.StatusFailed {
			t.Errorf("%d runs, then %+v", runs, e)
		}
	})
}

func TestHeartbeatsEndWithTheHandlersDeadline(t *testing.T) {
	t.Parallel()
	for range 50 { // a heartbeat is due at the deadline
		synctest.Test(t, func(t *testing.T) {
			store := newLedger()
			handler := newInbox(t, store, leasing()).Middleware(handle(func(*message.Message) error {
				<-time.After(2 * time.Minute)
				return middleware.Unconfirmed(errors.New("boom"))
			}))
			if _, err := handler(newMessage(t.Context(), "a")); err != nil {
				t.Fatal(err)
			}
			if n := store.calls("extend"); n != 5 {
				t.Fatalf("it was renewed %d times in a minute", n)
			}
		})
	}
}

// forgetful makes a change and loses the reply to it, once.
type forgetful struct {
	*ledger

	lost bool
}

func (s *forgetful) Record(ctx context.Context, f stores.Failure) (int64, error) {
	version, err := s.ledger.Record(ctx, f)
	if err == nil && !s.lost {
		s.lost = true
		return 0, stores.ErrUnavailable
	}
	return version, err
}

func TestStartWithoutAReplyIsRecognised(t *testing.T) {
	t.Parallel()
	for _, away := range []int{0, 2} { // times that the lease cannot be renewed
		synctest.Test(t, func(t *testing.T) {
			store, end, provider := &forgetful{ledger: newLedger()}, &ends{}, &outside{}
			store.fault = func(call string) error {
				if call == "extend" && away > 0 {
					away--
					return stores.ErrUnavailable
				}
				return nil
			}
			begun := time.Now()
			handler := newInbox(t, store, leasing(stopping), end.configure).Middleware(handle(provider.pay))
			if _, err := handler(newMessage(t.Context(), "a")); err != nil {
				t.Fatal(err)
			}
			if e := end.last(); e.Result != middleware.ResultCompleted || len(provider.keys) != 1 || time.Since(begun) > 30*time.Second {
				t.Errorf("%d runs, after %s: %+v", len(provider.keys), time.Since(begun), e)
			}
		})
	}
}

// mute loses the reply to one record, or the record.
type mute struct {
	*ledger

	answers int // records that are answered before
	written bool
}

func (s *mute) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if s.answers--; s.answers != -1 {
		return s.ledger.Record(ctx, f)
	}
	if s.written {
		if _, err := s.ledger.Record(ctx, f); err != nil {
			return 0, err
		}
	}
	return 0, stores.ErrUnavailable
}

// A worker's start that was not answered is either its own, or made again. Nobody takes it for
// the end of a process.
func TestStartOfAParkedMessageWithoutAReply(t *testing.T) {
	t.Parallel()
	plain := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil }
	for name, test := range map[string]struct {
		codec, leased, suspect bool
		answers                int
	}{
		"under a lease":              {leased: true},
		"suspect, under a lease":     {leased: true, suspect: true},
		"suspect":                    {suspect: true},
		"encoded, under a lease":     {codec: true, leased: true, suspect: true, answers: 1},
		"encoded, not even a record": {codec: true, leased: true},
		"encoded, suspect":           {codec: true, suspect: true},
		"its count, under a lease":   {codec: true, leased: true, suspect: true},
	} {
		for _, written := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, written %t", name, written), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					store, end := &mute{ledger: newLedger(), answers: test.answers, written: written}, &ends{}
					f := failedBefore("a", stores.PlacementParked, 1)
					if test.codec {
						f.Content = &stores.Content{State: stores.ContentKept, Codec: "plain", UUID: "a", Payload: []byte("payload of a")}
					}
					store.put(f)
					store.rows["a"].reserved = test.suspect
					in := newInbox(t, store, end.configure, func(c *middleware.InboxConfig) {
						if test.leased {
							leasing(stopping)(c)
						}
						if test.codec {
							c.Keep.Codec = &middleware.Codec{Name: "plain", Encode: plain, Decode: plain}
						}
					})
					runs, begun := 0, time.Now()
					work(t, in, func(m *message.Message) error {
						runs++
						row := store.row("a")
						if n := middleware.Attempt(m.Context()); n != 2 {
							t.Errorf("attempt %d", n)
						}
						if test.leased && (row.failure.Holder == "" || !row.presumed || !row.due.After(time.Now())) {
							t.Errorf("it runs without a lease: %+v", row)
						}
						return nil
					}, func() {
						waitUntil(t, func() bool { return store.row("a").status != stores.StatusPending })
					})
					if row := store.row("a"); row.status != stores.StatusCompleted || runs != 1 || time.Since(begun) > 15*time.Second {
						t.Errorf("%d runs, after %s: %+v\n%s", runs, time.Since(begun), row, store.story())
					}
				})
			})
		}
	}
}

// tardy writes one record after its answer was given up, when the next one comes.
type tardy struct {
	*ledger

	late *stores.Failure
	sent bool
}

func (s *tardy) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if !s.sent {
		s.sent, s.late = true, &f
		return 0, stores.ErrUnavailable
	}
	if s.late != nil {
		_, _ = s.ledger.Record(ctx, *s.late)
		s.late = nil
	}
	return s.ledger.Record(ctx, f)
}

// The start may be written after it was made again: it is the delivery's own all the same.
func TestStartThatIsWrittenLateIsRecognised(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"delivered", "parked", "encoded"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, provider, begun := &tardy{ledger: newLedger()}, &outside{}, time.Now()
				in := newInbox(t, store, leasing(stopping), func(c *middleware.InboxConfig) { c.Keep.Codec = reverse() })
				if kind != "delivered" {
					f := failedBefore("a", stores.PlacementParked, 1)
					if kind == "encoded" {
						f.Content = &stores.Content{State: stores.ContentKept, Codec: reverse().Name, UUID: "a", Payload: []byte("x")}
					}
					store.put(f)
					store.rows["a"].reserved = kind == "encoded"
					work(t, in, provider.pay, func() {
						waitUntil(t, func() bool { return store.row("a").status != stores.StatusPending })
					})
				} else if _, err := in.Middleware(handle(provider.pay))(newMessage(t.Context(), "a")); err != nil {
					t.Error(err)
				}
				if row := store.row("a"); row.status != stores.StatusCompleted || len(provider.keys) != 1 || time.Since(begun) > 15*time.Second {
					t.Errorf("%d runs, after %s: %+v\n%s", len(provider.keys), time.Since(begun), row, store.story())
				}
			})
		})
	}
}

// What may have ended a process runs alone among suspects. Other leased messages are none.
func TestLapsedLeasesDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		store.put(leasedBefore("a", 1))
		runs, finish := make(chan struct{}), make(chan struct{})
		handler := newInbox(t, store, leasing(), end.configure).Middleware(handle(func(m *message.Message) error {
			if m.UUID == "a" {
				close(runs)
				<-finish
			}
			return nil
		}))
		taken := make(chan error, 1)
		go func() {
			_, err := handler(newMessage(t.Context(), "a"))
			taken <- err
		}()
		<-runs
		begun := time.Now()
		time.AfterFunc(20*time.Second, func() { close(finish) })
		if _, err := handler(newMessage(t.Context(), "b")); err != nil || end.last().Result != middleware.ResultCompleted {
			t.Fatal(err, end.last())
		}
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("another message has waited for %s", waited)
		}
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}

// The attempt that is counted for the codec's sake has a lease, which is this delivery's own.
func TestSpentEncodedMessageUnderALeaseIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end, provider := newLedger(), &ends{}, &outside{}
		f := leasedBefore("a", 3)
		f.Class = stores.ClassCrash
		store.put(f)
		plain := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil }
		in := newInbox(t, store, leasing(), end.configure, func(c *middleware.InboxConfig) {
			c.Retry.MaxAttempts = 3
			c.Keep.Codec = &middleware.Codec{Name: "plain", Encode: plain, Decode: plain}
		})
		begun := time.Now()
		if _, err := in.Middleware(handle(provider.pay))(newMessage(t.Context(), "a")); err != nil {
			t.Fatal(err)
		}
		row := store.row("a")
		if waited := time.Since(begun); row.status != stores.StatusFailed || row.failure.Content.State != stores.ContentKept || len(provider.keys) > 0 || waited > 15*time.Second {
			t.Errorf("after %s: %+v", waited, row)
		}
	})
}

// A drain ends no completion at its first trouble: the effect has happened.
func TestCompletionIsTriedAgainWhileTheServiceStops(t *testing.T) {
	t.Parallel()
	for failures, class := range map[int]stores.Class{1: "", 1000: stores.ClassUnconfirmed} {
		synctest.Test(t, func(t *testing.T) {
			store, end, provider := newLedger(), &ends{}, &outside{}
			ctx, stop := context.WithCancel(t.Context())
			store.fault = func(call string) error {
				if call == "begin" && failures > 0 {
					failures--
					return stores.ErrUnavailable
				}
				return nil
			}
			begun := time.Now()
			handler := newInbox(t, store, leasing(stopping), end.configure).Middleware(handle(func(m *message.Message) error {
				stop()
				return provider.pay(m)
			}))
			_, _ = handler(newMessage(ctx, "a"))
			if e := end.last(); e.Class != class || (class == "") != (e.Result == middleware.ResultCompleted) || len(provider.keys) != 1 || time.Since(begun) > 5*time.Second {
				t.Errorf("%d runs in %s, then %+v", len(provider.keys), time.Since(begun), e)
			}
		})
	}
}
