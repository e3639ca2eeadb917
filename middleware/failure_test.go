package middleware_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func TestFailedMessageIsParkedWithItsContentAndAcked(t *testing.T) {
	t.Parallel()
	store, end := &scriptedStore{}, &ends{}
	ctx := withDelivery(t.Context(), brokers.Delivery{Topic: "orders", Coordinates: "orders/3/1042"})
	m := newMessage(ctx, "a")
	m.Metadata.Set("event", "placed")
	if _, err := newInbox(t, store, end.configure).Middleware(handle(fail))(m); err != nil {
		t.Fatal(err)
	}
	f := store.recorded[0]
	if f.Version != 0 || f.Start || f.Status != stores.StatusPending || f.Placement != stores.PlacementParked || f.Attempts != 1 || f.Uncounted != 0 {
		t.Errorf("recorded %+v", f)
	}
	if f.Topic != "orders" || f.Coordinates != "orders/3/1042" || f.Error != "boom" || f.DueIn < time.Second/2 || f.DueIn > time.Second {
		t.Errorf("recorded %+v", f)
	}
	if c := f.Content; c.State != stores.ContentKept || c.UUID != "a" || string(c.Payload) != "payload of a" || c.Metadata["event"] != "placed" {
		t.Errorf("kept %+v", c)
	}
	if e := end.last(); e.Result != middleware.ResultParked || e.Class != stores.ClassTransient || e.Attempts != 1 || e.DueIn != f.DueIn {
		t.Errorf("ended as %+v", e)
	}
	if givenBack(ctx).Failed {
		t.Error("a message that is kept spends a delivery of the broker")
	}
}

func TestHandlerOfAnotherStoreIsToldWhichOneThisIs(t *testing.T) {
	t.Parallel()
	end := &ends{}
	other := func(*message.Message) error { return stores.ErrNoTx }
	if _, err := newInbox(t, &scriptedStore{}, end.configure).Middleware(handle(other))(newMessage(t.Context(), "a")); err != nil {
		t.Fatal(err)
	}
	if err := end.last().Err; !errors.Is(err, stores.ErrNoTx) || !strings.HasSuffix(err.Error(), "(the inbox is on a *middleware_test.scriptedStore)") {
		t.Errorf("it is told %v", err)
	}
}

func TestRedeliveredMessageIsGivenBackUntilItIsDue(t *testing.T) {
	t.Parallel()
	store, end := &scriptedStore{}, &ends{}
	ctx := withDelivery(t.Context(), brokers.Delivery{})
	_, err := newInbox(t, store, redelivered, end.configure).Middleware(handle(fail))(newMessage(ctx, "a"))
	if err == nil || middleware.OnlyFailures(err) || end.last().Result != middleware.ResultGivenBack {
		t.Fatal(err, end.last())
	}
	f := store.recorded[0]
	if f.Placement != stores.PlacementRedelivered || f.Content.State != stores.ContentNone || f.Content.Payload != nil {
		t.Errorf("recorded %+v", f)
	}
	if g := givenBack(ctx); !g.Failed || g.After != f.DueIn || g.After == 0 {
		t.Errorf("given back as %+v", g)
	}
}

// A poison queue acks what it takes. What was given back with its attempt on record would
// stay pending for ever.
func TestPoisonQueueLeavesWhatWillComeAgain(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*message.Message) error{
		"an error": fail,
		"a panic":  func(*message.Message) error { panic("boom") },
	} {
		c := &copies{}
		poisonQueue, err := watermillmiddleware.PoisonQueueWithFilter(c, "poison", middleware.OnlyFailures)
		if err != nil {
			t.Fatal(err)
		}
		in := newInbox(t, newLedger(), redelivered)
		chain := watermillmiddleware.Recoverer(poisonQueue(in.Middleware(handle(handler))))
		if _, err := chain(newMessage(t.Context(), "a")); err == nil || len(c.published) != 0 {
			t.Errorf("%s: %v, %d copies", name, err, len(c.published))
		}
	}
	if !middleware.OnlyFailures(errors.New("of a handler without an inbox")) || middleware.OnlyFailures(nil) {
		t.Error("it does not tell other errors")
	}
}

func TestSpentMessageIsFailedWithItsContentInBothPlacements(t *testing.T) {
	t.Parallel()
	for _, placement := range []stores.Placement{stores.PlacementParked, stores.PlacementRedelivered} {
		store, end := newLedger(), &ends{}
		in := newInbox(t, store, end.configure, func(c *middleware.InboxConfig) {
			c.Retry.MaxAttempts, c.Retry.Placement = 3, placement
		})
		store.put(failedBefore("a", stores.PlacementRedelivered, 2))
		_, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a"))
		r := store.row("a")
		if err != nil || r.status != stores.StatusFailed || r.failure.Attempts != 3 || string(r.failure.Content.Payload) != "payload of a" {
			t.Errorf("%s: %v, %+v", placement, err, r)
		}
		if e := end.last(); e.Result != middleware.ResultFailed || e.Attempts != 3 || e.Err == nil {
			t.Errorf("%s: ended as %+v", placement, e)
		}
	}
}

func TestWhatIsSettledOrParkedIsAckedWithoutARun(t *testing.T) {
	t.Parallel()
	for result, row := range map[middleware.Result]stores.Failure{
		middleware.ResultParked: {Key: stores.Key{ID: []byte("u:a")}, Status: stores.StatusPending, Placement: stores.PlacementParked},
		middleware.ResultFinal:  {Key: stores.Key{ID: []byte("u:a")}, Status: stores.StatusDiscarded},
	} {
		for _, suspect := range []bool{false, true} {
			store, end := newLedger(), &ends{}
			store.put(row)
			ctx := withDelivery(t.Context(), brokers.Delivery{Suspect: suspect})
			_, err := newInbox(t, store, end.configure).Middleware(handle(mustNotRun(t)))(newMessage(ctx, "a"))
			if err != nil || end.last().Result != result || store.calls("record") != 0 {
				t.Errorf("suspect %v: %v, %+v", suspect, err, end.last())
			}
		}
	}
}

func mustNotRun(t *testing.T) func(*message.Message) error {
	t.Helper()
	return func(m *message.Message) error {
		t.Errorf("the handler ran for %s", m.UUID)
		return nil
	}
}

// An earlier failure of another message under the same id.
func TestConflictWithAFailedMessageIsQuarantined(t *testing.T) {
	t.Parallel()
	store := newLedger()
	f := failedBefore("a", stores.PlacementParked, 1)
	f.Fingerprint = stores.NewFingerprint(stores.FingerprintKey{}, []byte("another payload"))
	store.put(f)
	_, err := newInbox(t, store).Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "a"))
	if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonConflict ||
		store.quarantined[0].Existing != f.Fingerprint || !strings.Contains(store.quarantined[0].Detail, "which has failed") {
		t.Errorf("%v, %+v", err, store.quarantined)
	}
}

func TestTooEarlyRedeliveryIsHeldUntilItIsDue(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ due, held, after time.Duration }{
		{due: 10 * time.Second, held: 10 * time.Second},
		{due: time.Hour, held: 5 * time.Minute, after: 55 * time.Minute}, // as long as it may be held
	} {
		synctest.Test(t, func(t *testing.T) {
			store := newLedger()
			f := failedBefore("a", stores.PlacementRedelivered, 1)
			f.DueIn = test.due
			store.put(f)
			ctx, start := withDelivery(t.Context(), brokers.Delivery{}), time.Now()
			_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { return nil }))(newMessage(ctx, "a"))
			if (err == nil) != (test.after == 0) || time.Since(start) != test.held || givenBack(ctx).After != test.after {
				t.Errorf("%v after %s, given back as %+v", err, time.Since(start), givenBack(ctx))
			}
			if r := store.row("a"); test.after != 0 && r.failure.Attempts != 1 {
				t.Errorf("counted: %+v", r)
			}
		})
	}
}

// What has changed meanwhile is not written over; a new claim tells what it is now.
func TestFailureOfAMessageThatHasChangedIsNotRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, end := newLedger(), &ends{}
		store.put(failedBefore("a", stores.PlacementRedelivered, 1))
		_, err := newInbox(t, store, end.configure).Middleware(handle(func(*message.Message) error {
			store.mu.Lock()
			defer store.mu.Unlock()
			store.rows["a"].status = stores.StatusDiscarded // by an operator
			store.rows["a"].revision++
			return errors.New("boom")
		}))(newMessage(t.Context(), "a"))
		if err != nil || end.last().Result != middleware.ResultFinal || end.last().Runs != 1 || store.row("a").failure.Attempts != 1 {
			t.Error(err, end.last(), store.story())
		}
	})
}

// Nothing is acked that is not kept, and nothing runs again because it is not.
func TestFailureIsHeldUntilItIsRecorded(t *testing.T) {
	t.Parallel()
	for _, broken := range []error{stores.ErrUnavailable, errors.New("unexpected")} {
		synctest.Test(t, func(t *testing.T) {
			store, runs, start := newLedger(), 0, time.Now()
			store.fault = func(call string) error {
				if call == "record" && time.Since(start) < time.Minute {
					return broken
				}
				return nil
			}
			_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { runs++; return errors.New("boom") }))(newMessage(t.Context(), "a"))
			if r := store.row("a"); err != nil || runs != 1 || r.failure.Attempts != 1 || r.failure.Placement != stores.PlacementParked {
				t.Errorf("%v, %d runs, %+v", err, runs, r)
			}
		})
	}
}

func TestFailureThatCannotBeRecordedGoesBackUncounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.failing("record")
		ctx := withDelivery(t.Context(), brokers.Delivery{})
		_, err := newInbox(t, store).Middleware(handle(fail))(newMessage(ctx, "a"))
		if !errors.Is(err, middleware.ErrNotNow) || !errors.Is(err, stores.ErrUnavailable) || middleware.OnlyFailures(err) || givenBack(ctx).Failed {
			t.Errorf("%v, given back as %+v", err, givenBack(ctx))
		}
	})
}

// The tables were replaced while the handler ran, and its claim with them.
func TestFailureWithoutTablesIsClaimedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		store.fault = func(call string) error {
			if call == "record" && store.asked["record"] == 1 {
				return stores.ErrNotRegistered
			}
			return nil
		}
		_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { runs++; return errors.New("boom") }))(newMessage(t.Context(), "a"))
		if err != nil || runs != 2 || store.row("a").failure.Attempts != 1 || len(store.registered) != 2 {
			t.Error(err, runs, store.story(), store.registered)
		}
	})
}

func TestMessageTheStoreCannotKeepIsLeftToTheBroker(t *testing.T) {
	t.Parallel()
	store := &scriptedStore{record: func(_ int, f stores.Failure) error {
		if f.Content.Payload != nil {
			return stores.ErrTooLarge
		}
		return nil
	}}
	ctx := withDelivery(t.Context(), brokers.Delivery{})
	_, err := newInbox(t, store).Middleware(handle(fail))(newMessage(ctx, "a"))
	if err == nil || !givenBack(ctx).Failed || len(store.recorded) != 1 {
		t.Fatal(err, store.recorded)
	}
	if f := store.recorded[0]; f.Placement != stores.PlacementRedelivered || f.Content.State != stores.ContentTooLarge || f.Attempts != 1 {
		t.Errorf("recorded %+v", f)
	}
}

func TestErrorsOfAnyKindAreRecorded(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("boom ", 2<<20) // 10 MB
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"of 10 MB":             {errors.New(huge), huge[:100]},
		"of 10 MB, for good":   {middleware.Permanent(errors.New(huge)), "[given up: a permanent error]"},
		"whose method panics":  {panickingError{}, "whose Error method panicked: no text"},
		"wrapped, and panics":  {errors.Join(panickingError{}, errors.New("boom")), "panicked: no text"},
		"with control letters": {errors.New("\x1b[2J\x00\xff"), "\x1b[2J\x00\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &scriptedStore{}
			_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error { return test.err }))(newMessage(t.Context(), "a"))
			if err != nil || len(store.recorded) != 1 || !strings.Contains(store.recorded[0].Error, test.want) {
				t.Fatalf("%v, %d recorded", err, len(store.recorded))
			}
			if f := store.recorded[0]; f.Status == stores.StatusFailed && len(f.Error) > stores.MaxErrorBytes {
				t.Errorf("%d bytes, of which the store would cut the reason off", len(f.Error))
			}
		})
	}
}

type panickingError struct{}

func (panickingError) Error() string { panic("no text") }

// A handler that heeds the shutdown has not failed.
func TestHandlerCanceledByTheShutdownIsNotCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		store := newLedger()
		_, err := newInbox(t, store).Middleware(handle(func(*message.Message) error {
			stop()
			return context.Canceled
		}))(newMessage(ctx, "a"))
		if !errors.Is(err, middleware.ErrNotNow) || store.calls("record") != 0 {
			t.Error(err, store.story())
		}
	})
}

func TestPanicIsRecordedBeforeItGoesOnUp(t *testing.T) {
	t.Parallel()
	store, end := newLedger(), &ends{}
	in := newInbox(t, store, end.configure)
	func() {
		defer func() {
			if p, ok := recover().(*middleware.PanicError); !ok || p.Value() != "boom" {
				t.Error(p)
			}
		}()
		_, _ = in.Middleware(panickingHandler)(newMessage(t.Context(), "a"))
	}()
	if r := store.row("a"); r.failure.Class != stores.ClassPanic || r.failure.Attempts != 1 || end.last().Result != middleware.ResultPanicked {
		t.Errorf("%+v, %+v", r, end.last())
	}
	if _, err := in.Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "a")); err != nil {
		t.Error(err) // the redelivery of what is parked by now
	}
}

// Some brokers deliver again at once what is given back, and count it.
func TestMessageThatIsNotDueForLongSpendsFewDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs, deliveries, start := newLedger(), 0, 0, time.Now()
		in := newInbox(t, store, redelivered)
		for store.row("a").status != stores.StatusCompleted {
			if deliveries++; deliveries > 100 {
				t.Fatalf("%d deliveries in %s", deliveries, time.Since(start))
			}
			_, _ = in.Middleware(handle(func(*message.Message) error {
				if runs++; runs == 1 {
					return middleware.RetryAfter(errors.New("rate limited"), time.Hour)
				}
				return nil
			}))(newMessage(t.Context(), "a"))
		}
		if runs != 2 || time.Since(start) != time.Hour {
			t.Errorf("%d runs, completed after %s", runs, time.Since(start))
		}
		if most := int(time.Hour/(5*time.Minute)) + 1; deliveries > most {
			t.Errorf("%d deliveries, want at most one in each Hold.Limit", deliveries)
		}
	})
}
