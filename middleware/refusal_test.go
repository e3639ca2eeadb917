package middleware_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// refusing is a codec that refuses as long as refuse returns an error.
func refusing(refuse func() error) *middleware.Codec {
	c := reverse()
	encode := c.Encode
	c.Encode = func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
		if err := refuse(); err != nil {
			return k, err
		}
		return encode(ctx, k)
	}
	return c
}

// redeliver delivers a message again and again, as a broker without a limit does, until it
// is acked or has been given back as failed so often. It returns how often that was.
func redeliver(t *testing.T, in *middleware.Inbox, handler func(*message.Message) error, most int) (failed int, acked bool) {
	t.Helper()
	for n := 1; n < 100_000; n++ {
		m := newMessage(t.Context(), "a")
		ctx := brokers.WithDelivery(t.Context(), m, brokers.Delivery{Count: n, Suspect: n > 1})
		m.SetContext(ctx)
		_, err := in.Middleware(handle(handler))(m)
		if err == nil {
			return failed, true
		}
		g := brokers.GiveBackFrom(ctx)
		if g.Failed {
			if failed++; failed > most {
				return failed, false
			}
		}
		<-time.After(max(g.After, 10*time.Millisecond))
	}
	t.Fatal("it never ends")
	return 0, false
}

// Whatever refuses a message that has failed for good, its handler is not run again, and it
// ends.
func TestRefusalsOfALastFailureEnd(t *testing.T) {
	t.Parallel()
	away := errors.New("no key service")
	const age = 2 * time.Hour
	healsAfter := func(d time.Duration) func() func() error {
		return func() func() error {
			begun := time.Now()
			return func() error {
				if time.Since(begun) < d {
					return away
				}
				return nil
			}
		}
	}
	for name, test := range map[string]struct {
		codec, publisher func() func() error
		keep             middleware.KeepConfig
		content          stores.ContentState
		noted            string
		copies           int
		atLeast, atMost  time.Duration
		givenBack        bool // as failed
	}{
		"codec that heals":                {codec: healsAfter(time.Hour), content: stores.ContentKept, copies: 1, atLeast: time.Hour, atMost: age},
		"codec that refuses for good":     {codec: func() func() error { return func() error { return middleware.Permanent(away) } }, content: stores.ContentRefused, noted: "[not kept:", copies: 1, atMost: time.Minute},
		"codec that never heals":          {codec: healsAfter(1000 * time.Hour), content: stores.ContentRefused, copies: 1, atLeast: 2 * age, atMost: 3 * age, givenBack: true},
		"codec that panics":               {codec: func() func() error { return func() error { panic("no key service") } }, content: stores.ContentRefused, copies: 1, atLeast: 2 * age, atMost: 3 * age, givenBack: true},
		"copy too large":                  {publisher: func() func() error { return func() error { return fmt.Errorf("kafka: %w", brokers.ErrTooLarge) } }, content: stores.ContentKept, noted: "[no copy:", atMost: time.Minute},
		"copy that cannot be encoded":     {publisher: func() func() error { return func() error { return fmt.Errorf("amqp: %w", brokers.ErrUnencodable) } }, content: stores.ContentKept, noted: "[no copy:", atMost: time.Minute},
		"publisher that refuses for good": {publisher: func() func() error { return func() error { return middleware.Permanent(away) } }, content: stores.ContentKept, noted: "[no copy:", atMost: time.Minute},
		"publisher that heals":            {publisher: healsAfter(time.Minute), content: stores.ContentKept, copies: 1, atLeast: time.Minute, atMost: 6 * time.Minute},
		"publisher that never heals":      {publisher: healsAfter(1000 * time.Hour), content: stores.ContentKept, noted: "[no copy:", atLeast: 4 * time.Minute, atMost: 6 * time.Minute},
		"publisher that panics":           {publisher: func() func() error { return func() error { panic("no broker") } }, content: stores.ContentKept, noted: "[no copy:", atLeast: 4 * time.Minute, atMost: 6 * time.Minute},
		"only the copy, late":             {publisher: healsAfter(time.Hour), keep: middleware.KeepConfig{Off: true}, content: stores.ContentOff, copies: 1, atLeast: time.Hour, atMost: age},
		"only the copy, never":            {publisher: healsAfter(1000 * time.Hour), keep: middleware.KeepConfig{Off: true}, content: stores.ContentOff, atLeast: age, atMost: 2 * age},
		"neither":                         {publisher: healsAfter(time.Hour), codec: healsAfter(30 * time.Minute), content: stores.ContentKept, copies: 1, atLeast: time.Hour, atMost: age},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, c, runs := newLedger(), &copies{}, 0
				if test.publisher != nil {
					refuse := test.publisher()
					c.publish = func(int) error { return refuse() }
				}
				in := newInbox(t, store, withCopies(c), func(config *middleware.InboxConfig) {
					config.Keep = test.keep
					config.Retry.MaxAge, config.Retry.Backoff.Max = age, time.Minute
					if test.codec != nil {
						config.Keep.Codec = refusing(test.codec())
					}
				})
				begun := time.Now()
				failed, acked := redeliver(t, in, func(*message.Message) error {
					runs++
					return middleware.Permanent(errors.New("boom"))
				}, 10_000)
				took := time.Since(begun)
				r := store.row("a")
				if !acked || runs != 1 || r.status != stores.StatusFailed || r.failure.Content.State != test.content {
					t.Errorf("acked %v after %d runs, %v, %v:\n%s", acked, runs, r.status, r.failure.Content, store.story())
				}
				if took < test.atLeast || took > test.atMost || (failed > 0) != test.givenBack {
					t.Errorf("it took %s, and was given back as failed %d times", took, failed)
				}
				if !strings.HasPrefix(r.failure.Error, "boom") || !strings.Contains(r.failure.Error, test.noted) || len(c.published) != test.copies {
					t.Errorf("its row says %q, and there are %d copies", r.failure.Error, len(c.published))
				}
			})
		})
	}
}

// The broker would have the message no longer than the delivery.
func TestDeadLetterIsCopiedAfterARestart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, c, runs := newLedger(), &copies{}, 0
		stopping, stop := context.WithCancel(t.Context())
		c.publish = func(n int) error {
			if n == 2 {
				stop()
			}
			if n <= 4 {
				return errors.New("no broker")
			}
			return nil
		}
		in := newInbox(t, store, withCopies(c))
		h := handle(func(*message.Message) error { runs++; return middleware.Permanent(errors.New("boom")) })
		if _, err := in.Middleware(h)(newMessage(stopping, "a")); !errors.Is(err, middleware.ErrNotNow) || store.row("a").status != stores.StatusFailed {
			t.Error(err, store.story())
		}
		_, err := in.Middleware(h)(newMessage(t.Context(), "a"))
		if r := store.row("a"); err != nil || runs != 1 || len(c.published) != 1 || r.failure.Content.State != stores.ContentKept {
			t.Error(err, runs, len(c.published), store.story())
		}
	})
}

// A parked message is in its row already, so that only the copy may be missing. Until it is
// there, or its time is over, the handler does not run again.
func TestRetriedMessageEndsWithoutItsCopy(t *testing.T) {
	t.Parallel()
	away := errors.New("no broker")
	for name, test := range map[string]struct {
		refusal error
		class   stores.Class
		heals   int // with this call
		copies  int
		noted   string
	}{
		"too large":       {brokers.ErrTooLarge, "", 0, 0, "[no copy:"},
		"away":            {away, "", 0, 0, "[no copy:"},
		"late":            {away, "", 60, 1, ""},
		"uncounted, away": {away, stores.ClassInterrupted, 0, 0, "[no copy:"},
		"uncounted, late": {away, stores.ClassInterrupted, 60, 1, ""},
		"permanent, late": {away, stores.ClassPermanent, 60, 1, ""},
		"no word of ours": {away, "uncopied: mine", 60, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs := newLedger(), 0
				c := &copies{publish: func(n int) error {
					if n == test.heals {
						return nil
					}
					return test.refusal
				}}
				store.put(failedBefore("a", stores.PlacementParked, 1))
				store.put(failedBefore("healthy", stores.PlacementParked, 1))
				in := newInbox(t, store, withCopies(c), func(c *middleware.InboxConfig) {
					c.Handler, c.Retry.MaxAttempts, c.Retry.MaxUncounted, c.Retry.MaxAge, c.Retry.Backoff.Max = "", 2, 1, 10*time.Minute, time.Minute
					c.Retry.Classify = func(error) stores.Class { return test.class }
				})
				work(t, in, func(m *message.Message) error {
					if m.UUID != "a" {
						return nil
					}
					runs++
					return errors.New("boom")
				}, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusFailed }) })
				f := store.row("a").failure
				if runs != 1 || f.Attempts+f.Uncounted != 2 || f.Content == nil || len(c.published) != test.copies {
					t.Errorf("%d runs, %d copies, %+v\n%s", runs, len(c.published), f, store.story())
				}
				class := cmp.Or(stores.Class(strings.TrimPrefix(string(test.class), "uncopied: ")), stores.ClassTransient)
				if f.Class != class || f.Cause != stores.CauseOf(class, "boom") || !strings.HasPrefix(f.Error, "boom [given up: ") || !strings.Contains(f.Error, test.noted) {
					t.Errorf("its row says %s, %s, %q", f.Class, f.Cause, f.Error)
				}
				for _, m := range c.published {
					if e := m.Metadata[middleware.MetadataError]; !strings.HasPrefix(e, "boom [given up: ") || m.Metadata[middleware.MetadataClass] != string(class) {
						t.Errorf("its copy says %q", m.Metadata)
					}
				}
				if store.row("healthy").status != stores.StatusCompleted {
					t.Error("it stopped others")
				}
			})
		})
	}
}

// A lower limit ends what has more attempts behind it with the next one, not before.
func TestParkedMessageIsRunOnceMoreThoughItsLimitIsLower(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		f := failedBefore("a", stores.PlacementParked, 5)
		f.Class = stores.ClassTransient
		store.put(f)
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler, c.Retry.MaxAttempts = "", 3 })
		work(t, in, func(*message.Message) error { runs++; return errors.New("boom") }, func() {
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusFailed })
		})
		if r := store.row("a"); runs != 1 || r.failure.Attempts != 6 || !strings.HasPrefix(r.failure.Error, "boom [given up: 6 of 3") {
			t.Errorf("%d runs, %+v\n%s", runs, r, store.story())
		}
	})
}

// An operator's retry is a new budget, for the handler too.
func TestMessageWithoutItsCopyRunsWhenAnOperatorWantsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		f := failedBefore("a", stores.PlacementParked, 0)
		f.Class = "uncopied: transient"
		store.put(f)
		in := newInbox(t, store, withCopies(&copies{}), func(c *middleware.InboxConfig) { c.Handler = "" })
		work(t, in, func(*message.Message) error { runs++; return nil }, func() {
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
		})
		if runs != 1 {
			t.Errorf("%d runs\n%s", runs, store.story())
		}
	})
}

// What a refusal says is not said by each of a thousand messages.
func TestManyRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &copies{publish: func(int) error { return middleware.Permanent(errors.New("no topic")) }}
		store := newLedger()
		in := newInbox(t, store, withCopies(c), func(c *middleware.InboxConfig) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		})
		for n := range 20 {
			h := handle(func(*message.Message) error { return middleware.Permanent(errors.New("boom")) })
			if _, err := in.Middleware(h)(newMessage(t.Context(), fmt.Sprint(n))); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(2 * time.Minute) // until what was left out is counted
		synctest.Wait()
		if n := strings.Count(log.String(), "msg=\"millpond: a dead letter has no copy\""); n != 5 || !strings.Contains(log.String(), "refused in the same way than are logged") {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}

// One message says it once, however long it is held.
func TestARefusalIsLoggedOncePerDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		store := newLedger()
		store.failing("record")
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.Keep.Codec = refusing(func() error { return middleware.Permanent(errors.New("no JSON")) })
		})
		h := handle(func(*message.Message) error { return middleware.Permanent(errors.New("boom")) })
		if _, err := in.Middleware(h)(newMessage(t.Context(), "a")); !errors.Is(err, middleware.ErrNotNow) {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "a message is not kept"); n != 1 {
			t.Errorf("%d lines:\n%s", n, log.String())
		}
	})
}

// A codec that never takes a message of the quarantine, and does not say so, is asked as long
// as the broker counts that, or as one delivery is held.
func TestQuarantineOfWhatTheCodecNeverTakesEnds(t *testing.T) {
	t.Parallel()
	for name, counted := range map[string]bool{"counted": true, "not counted": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, failed := newLedger(), 0
				in := newInbox(t, store, func(c *middleware.InboxConfig) {
					c.Retry.MaxUncounted = 10
					c.Keep.Codec = refusing(func() error { return errors.New("no JSON") })
				})
				deliveries := 0
				for len(store.quarantined) == 0 && deliveries < 100 {
					deliveries++
					d := brokers.Delivery{}
					if counted {
						d.Count = deliveries
					}
					ctx := withDelivery(t.Context(), d)
					_, err := in.Middleware(handle(mustNotRun(t)))(newMessage(ctx, ""))
					if g := givenBack(ctx); err != nil && g.Failed {
						failed++
						<-time.After(g.After)
					}
				}
				want, given := 1, 0
				if counted {
					want, given = 10, 9
				}
				if deliveries != want || failed != given {
					t.Fatalf("%d deliveries, given back as failed %d times", deliveries, failed)
				}
				if q := store.quarantined[0]; len(q.Payload) != 0 || !q.OneWay || !strings.Contains(q.Detail, "[not kept:") {
					t.Errorf("%+v", q)
				}
			})
		})
	}
}

// Nor is a delivery left open by a function that does not return.
func TestDeliveryEndsWhenTheCodecExitsItsGoroutine(t *testing.T) {
	t.Parallel()
	e := &ends{}
	in := newInbox(t, newLedger(), func(c *middleware.InboxConfig) {
		c.Hooks = []middleware.Hook{e}
		c.Keep.Codec = refusing(func() error { runtime.Goexit(); return nil })
	})
	m := newMessage(t.Context(), "")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = in.Middleware(handle(mustNotRun(t)))(m)
	}()
	<-done
	<-m.Nacked()
	if len(e.all) != 1 || e.all[0].Result != middleware.ResultPanicked || e.all[0].Err == nil {
		t.Errorf("ended %+v", e.all)
	}
}

// What goes to quarantine, too.
func TestQuarantineOfWhatTheCodecRefusesForGood(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.Keep.Codec = refusing(func() error { return middleware.Permanent(errors.New("no JSON")) })
	})
	if _, err := in.Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "")); err != nil {
		t.Fatal(err)
	}
	if q := store.quarantined[0]; len(q.Payload) != 0 || !q.OneWay || !strings.Contains(q.Detail, "[not kept:") {
		t.Errorf("%+v", q)
	}
}
