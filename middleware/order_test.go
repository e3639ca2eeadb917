package middleware_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func ordered(c *middleware.InboxConfig) { c.Retry.OrderKey = middleware.OrderByKey }

func ofKey(t *testing.T, id, key string, suspect bool) *message.Message {
	t.Helper()
	return newMessage(withDelivery(t.Context(), brokers.Delivery{Count: 1, Key: []byte(key), Suspect: suspect}), id)
}

// Order per key survives failure: what comes later waits behind what has failed.
func TestLaterMessagesOfAKeyAreParkedBehindAFailedOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		in := newInbox(t, store, ordered, end.configure)
		if _, err := in.Middleware(handle(fail))(ofKey(t, "first", "x", false)); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Middleware(handle(mustNotRun(t)))(ofKey(t, "second", "x", false)); err != nil {
			t.Fatal(err)
		}
		if e := end.last(); e.Result != middleware.ResultParked || e.Class != stores.ClassOrder || e.Attempts != 0 {
			t.Errorf("ended as %+v", e)
		}
		r := store.row("second")
		if r.failure.Attempts != 0 || r.failure.Class != stores.ClassOrder || string(r.failure.OrderKey) != "x" || string(r.failure.Content.Payload) != "payload of second" {
			t.Errorf("%+v", r)
		}
		if _, err := in.Middleware(handle(succeed))(ofKey(t, "other", "y", false)); err != nil || store.row("other").status != stores.StatusCompleted {
			t.Error("another key waits, too")
		}
	})
}

func TestMessageBehindAnotherIsHeldIfItCannotBeParked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, ordered, func(c *middleware.InboxConfig) { c.Keep.Off = true })
		f := failedBefore("first", stores.PlacementRedelivered, 1)
		f.OrderKey = []byte("x")
		store.put(f)
		go func() {
			<-time.After(time.Minute)
			store.mu.Lock()
			defer store.mu.Unlock()
			store.rows["first"].status = stores.StatusCompleted
		}()
		ran := time.Time{}
		start := time.Now()
		_, err := in.Middleware(handle(func(*message.Message) error { ran = time.Now(); return nil }))(ofKey(t, "second", "x", false))
		if err != nil || ran.Sub(start) < time.Minute {
			t.Errorf("%v, ran after %s", err, ran.Sub(start))
		}
	})
}

func TestMessageBehindAnotherThatTheStoreCannotKeepIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, ordered, func(c *middleware.InboxConfig) { c.Hold.Limit = time.Minute })
		f := failedBefore("first", stores.PlacementParked, 1)
		f.OrderKey = []byte("x")
		store.put(f)
		store.fault = func(call string) error {
			if call == "record" {
				return stores.ErrTooLarge
			}
			return nil
		}
		m := ofKey(t, "second", "x", false)
		if _, err := in.Middleware(handle(mustNotRun(t)))(m); err == nil || middleware.OnlyFailures(err) || store.calls("record") != 1 {
			t.Error(err, store.calls("record"))
		}
	})
}

// It was counted before it began, and then it did not begin.
func TestSuspectMessageBehindAnotherIsNotCounted(t *testing.T) {
	t.Parallel()
	store := &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
		return nil, stores.Verdict{Outcome: stores.Behind}, nil
	}}
	if _, err := newInbox(t, store, ordered).Middleware(handle(mustNotRun(t)))(ofKey(t, "second", "x", true)); err != nil || len(store.recorded) != 2 {
		t.Fatal(err, store.recorded)
	}
	if f := store.recorded[1]; f.Start || f.Attempts != 0 || f.Version != 1 || f.Placement != stores.PlacementParked {
		t.Errorf("%+v", f)
	}
}

// Brokers allow keys that are too long for an index.
func TestLongOrderKeysAreKeptAsHashes(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("k", stores.MaxOrderKeyBytes)
	store := newLedger()
	in := newInbox(t, store, ordered)
	got := make(map[string]bool)
	for i, key := range []string{longest, longest + "a", longest + "b", strings.Repeat("k", 1<<20)} {
		id := fmt.Sprint(i)
		if _, err := in.Middleware(handle(fail))(ofKey(t, id, key, false)); err != nil {
			t.Fatal(err)
		}
		kept := string(store.row(id).failure.OrderKey)
		if len(kept) > stores.MaxOrderKeyBytes || got[kept] || (kept == key) != (key == longest) {
			t.Errorf("a key of %d bytes is kept as %q", len(key), kept)
		}
		got[kept] = true
	}
	if _, err := in.Middleware(handle(mustNotRun(t)))(ofKey(t, "next", longest+"a", false)); err != nil || store.row("next").failure.Class != stores.ClassOrder {
		t.Error("a long key keeps no order:", err, store.story())
	}
}

func TestOrderKeyThatPanicsIsNone(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) {
		c.Retry.OrderKey = func(*message.Message) []byte { panic("no key") }
	})
	if _, err := in.Middleware(handle(succeed))(newMessage(t.Context(), "a")); err != nil || store.row("a").status != stores.StatusCompleted {
		t.Error(err, store.story())
	}
}

func TestOrderByMetadata(t *testing.T) {
	t.Parallel()
	m := newMessage(t.Context(), "a")
	f := middleware.OrderByMetadata("customer")
	if f(m) != nil {
		t.Error("a message without the field has an order key")
	}
	m.Metadata.Set("customer", "7")
	if string(f(m)) != "7" {
		t.Errorf("%q", f(m))
	}
}
