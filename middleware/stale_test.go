package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// agedDelivery is of a message that the broker took at a time.
func agedDelivery(t *testing.T, id string, taken time.Time) *message.Message {
	t.Helper()
	m := message.NewMessage(id, []byte("content"))
	m.SetContext(brokers.WithDelivery(inHandler(t, "stock"), m, brokers.Delivery{Topic: "orders", Time: taken}))
	return m
}

// purged is a store whose consumer has completed ids, and forgotten them.
func purged(t *testing.T, ids ...string) *sqlite.Store {
	t.Helper()
	ctx := t.Context()
	store, err := sqlite.Open(ctx, "sqlite://"+filepath.Join(t.TempDir(), "stale.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	inbox := newInbox(t, store).Middleware(handle(func(*message.Message) error { return nil }))
	for _, id := range ids {
		if _, err := inbox(agedDelivery(t, id, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	w, err := store.Watermarks(ctx)
	if err != nil || len(w.Consumers) != 1 {
		t.Fatalf("Watermarks = %+v, %v", w, err)
	}
	c := w.Consumers[0].Consumer
	if err := store.Announce(ctx, c, w.Now); err != nil {
		t.Fatal(err)
	}
	r, err := store.Purge(ctx, stores.PurgeQuery{Kind: stores.PurgeCompleted, Limits: []stores.PurgeLimit{{Consumer: c, Before: w.Now}}, Rows: 1000})
	if err != nil || r.Deleted != len(ids) {
		t.Fatalf("Purge = %+v, %v", r, err)
	}
	return store
}

func staleRows(t *testing.T, store *sqlite.Store) []stores.QuarantineRow {
	t.Helper()
	rows, err := store.Quarantined(t.Context(), stores.QuarantineQuery{Reason: stores.ReasonStale, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// Every message that was purged goes to quarantine when it comes again, and none that is new.
func TestWhatWasPurgedIsQuarantined(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 50 {
		ids = append(ids, fmt.Sprint("old ", i))
	}
	took := time.Now().Add(-time.Minute)
	store, ran := purged(t, ids...), 0
	inbox := newInbox(t, store).Middleware(handle(func(*message.Message) error { ran++; return nil }))
	for i, id := range ids {
		if _, err := inbox(agedDelivery(t, id, took)); err != nil || ran != i {
			t.Errorf("%s: %v, %d handlers ran", id, err, ran)
		}
		if _, err := inbox(agedDelivery(t, fmt.Sprint("new ", i), time.Now().Add(time.Hour))); err != nil || ran != i+1 {
			t.Errorf("a new one: %v, %d handlers ran", err, ran)
		}
	}
	rows := staleRows(t, store)
	if len(rows) != len(ids) {
		t.Errorf("%d messages are in quarantine, want %d", len(rows), len(ids))
	}
	for _, r := range rows {
		if r.Detail == "" || string(r.ID) == "" {
			t.Errorf("a row says %+v", r)
		}
	}
}

// Nor does one run that counts its attempt before a claim: what is redelivered, as all are after
// offsets were set back, and what a lease is for.
func TestWhatWasPurgedIsQuarantinedBeforeItsAttemptIsCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		suspect   bool
		configure func(*middleware.InboxConfig)
	}{
		"redelivered": {true, func(*middleware.InboxConfig) {}},
		"leased": {false, func(c *middleware.InboxConfig) {
			c.LeaseByHandler = map[string]middleware.LeaseConfig{"stock": {}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, ran := purged(t, "old"), 0
			inbox := newInbox(t, store, test.configure).Middleware(handle(func(*message.Message) error { ran++; return nil }))
			deliver := func(id string, taken time.Time) {
				t.Helper()
				m := message.NewMessage(id, []byte("content"))
				m.SetContext(brokers.WithDelivery(inHandler(t, "stock"), m, brokers.Delivery{Topic: "orders", Time: taken, Suspect: test.suspect}))
				if _, err := inbox(m); err != nil {
					t.Error(err)
				}
			}
			took := time.Now().Add(-time.Minute)
			deliver("old", took)
			if ran != 0 || len(staleRows(t, store)) != 1 {
				t.Errorf("%d handlers ran, %d messages are in quarantine", ran, len(staleRows(t, store)))
			}
			deliver("new", time.Now().Add(time.Hour))
			deliver("new", took) // its row decides
			deliver("of an unknown time", time.Time{})
			if ran != 2 || len(staleRows(t, store)) != 1 {
				t.Errorf("%d handlers ran of two that are not old, %d messages are in quarantine", ran, len(staleRows(t, store)))
			}
		})
	}
}

// Too many of them are a mistake of somebody's, and wait for an operator.
func TestFloodOfStaleDeliveriesPausesTheIntake(t *testing.T) {
	t.Parallel()
	store, took := purged(t, "a", "b", "c"), time.Now().Add(-time.Minute)
	configure := func(c *middleware.InboxConfig) {
		c.MaxStale, c.Hold.Limit = 1, 50*time.Millisecond
	}
	run := func() (errs []error) {
		inbox := newInbox(t, store, configure).Middleware(handle(func(*message.Message) error {
			t.Error("the handler ran")
			return nil
		}))
		for _, id := range []string{"a", "b", "c"} {
			_, err := inbox(agedDelivery(t, id, took))
			errs = append(errs, err)
		}
		return errs
	}
	if errs := run(); errs[0] != nil || !errors.Is(errs[1], middleware.ErrStaleFlood) || !errors.Is(errs[2], middleware.ErrStaleFlood) || len(staleRows(t, store)) != 1 {
		t.Errorf("%v, %d in quarantine", errs, len(staleRows(t, store)))
	}
	w, err := store.Watermarks(t.Context())
	if err == nil {
		err = store.AcceptStale(context.WithoutCancel(t.Context()), w.Consumers[0].Consumer, time.Hour)
	}
	if err != nil {
		t.Fatal(err)
	}
	if errs := run(); errors.Join(errs...) != nil || len(staleRows(t, store)) != 3 {
		t.Errorf("accepted: %v, %d in quarantine", errs, len(staleRows(t, store)))
	}
}

// Time alone lets no more of them into quarantine.
func TestFloodOfStaleDeliveriesWaitsForAnOperatorHoweverLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &scriptedStore{begin: func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
			return nil, stores.Verdict{Outcome: stores.Stale}, nil
		}}
		inbox := newInbox(t, store, func(c *middleware.InboxConfig) { c.MaxStale, c.Hold.Limit = 2, time.Second }).Middleware(handle(mustNotRun(t)))
		for range 5 {
			for _, id := range []string{"a", "b", "c"} {
				_, _ = inbox(newMessage(t.Context(), id))
			}
			<-time.After(2 * time.Hour)
		}
		if n := len(store.quarantined); n != 2 {
			t.Errorf("%d messages are in quarantine, want 2", n)
		}
	})
}

// The purge hears of old deliveries, which may lag behind its window.
func TestOldDeliveriesAreNoted(t *testing.T) {
	t.Parallel()
	store := purged(t, "x")
	inbox := newInbox(t, store).Middleware(handle(func(*message.Message) error { return nil }))
	oldest := time.Now().Add(-48 * time.Hour)
	for i, taken := range []time.Time{time.Now(), oldest.Add(time.Hour), oldest, oldest.Add(time.Minute)} {
		if _, err := inbox(agedDelivery(t, fmt.Sprint(i), taken)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := store.Watermarks(t.Context())
	if err != nil || !w.Consumers[0].LateTime.Equal(oldest.Truncate(time.Microsecond)) {
		t.Errorf("%+v, %v, want %s", w, err, oldest)
	}
}

// deaf is a store that cannot note a late delivery for a while.
type deaf struct {
	*sqlite.Store
	asked, down int
}

func (d *deaf) NoteLate(ctx context.Context, c stores.Consumer, at time.Time) error {
	if d.asked++; d.asked <= d.down {
		return stores.ErrUnavailable
	}
	return d.Store.NoteLate(ctx, c, at)
}

// What could not be noted is noted by the next delivery: else a purge would not know of it.
func TestALateDeliveryIsNotedAgainAfterAnError(t *testing.T) {
	t.Parallel()
	store := &deaf{Store: purged(t, "x"), down: 2}
	inbox := newInbox(t, store).Middleware(handle(func(*message.Message) error { return nil }))
	taken := time.Now().Add(-7 * time.Hour).Truncate(time.Millisecond)
	for i := range 5 {
		_, _ = inbox(agedDelivery(t, fmt.Sprint(i), taken))
	}
	w, err := store.Watermarks(t.Context())
	if err != nil || len(w.Consumers) != 1 || !w.Consumers[0].LateTime.Equal(taken) || store.asked != 3 {
		t.Errorf("it was asked %d times: %+v, %v", store.asked, w, err)
	}
}

// A producer may set a time that no database can compare: one that has passed is stale like any
// other, and one to come is not.
func TestTimesOfProducersThatNoDatabaseCompares(t *testing.T) {
	t.Parallel()
	store, ran := purged(t, "old"), 0
	inbox := newInbox(t, store).Middleware(handle(func(*message.Message) error { ran++; return nil }))
	for id, taken := range map[string]time.Time{
		"milliseconds": time.UnixMilli(math.MaxInt64), "seconds": time.Unix(1<<45, 0), "a year": time.Date(294277, 1, 1, 0, 0, 0, 0, time.UTC),
		"passed milliseconds": time.UnixMilli(math.MinInt64), "passed year": time.Date(-5000, 1, 1, 0, 0, 0, 0, time.UTC), "passed epoch": time.Unix(0, 0),
	} {
		before, stale := ran, len(staleRows(t, store))
		_, err := inbox(agedDelivery(t, id, taken))
		if runs, wants := ran > before, !strings.HasPrefix(id, "passed"); err != nil || runs != wants || (len(staleRows(t, store)) > stale) == wants {
			t.Errorf("%s: %v, it ran: %t", id, err, runs)
		}
	}
}
