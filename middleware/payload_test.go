package middleware_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// inPlace returns a handler that writes over the bytes of the payload and then does as f.
func inPlace(f func(*message.Message) error) func(*message.Message) error {
	return func(m *message.Message) error {
		clear(m.Payload)
		return f(m)
	}
}

// The broker still has what arrived; a worker would run another message.
func TestMessageChangedInPlaceIsLeftToTheBroker(t *testing.T) {
	t.Parallel()
	store := newLedger()
	ctx := withDelivery(t.Context(), brokers.Delivery{})
	_, err := newInbox(t, store).Middleware(handle(inPlace(fail)))(newMessage(ctx, "a"))
	r := store.row("a")
	if err == nil || !givenBack(ctx).Failed || r.status != stores.StatusPending || r.failure.Attempts != 1 {
		t.Fatalf("%v, %+v", err, r)
	}
	if r.failure.Placement != stores.PlacementRedelivered || r.failure.Content.Payload != nil || r.failure.Content.State == stores.ContentKept {
		t.Errorf("parked as %+v, %+v", r.failure, r.failure.Content)
	}
}

func TestDeadLetterChangedInPlaceSaysSo(t *testing.T) {
	t.Parallel()
	store := newLedger()
	permanent := func(*message.Message) error { return middleware.Permanent(errors.New("boom")) }
	_, err := newInbox(t, store).Middleware(handle(inPlace(permanent)))(newMessage(t.Context(), "a"))
	r := store.row("a")
	if err != nil || r.status != stores.StatusFailed || r.failure.Content.State != stores.ContentOneWay || !strings.Contains(r.failure.Error, "changed the payload in place") {
		t.Errorf("%v, %+v, %+v", err, r, r.failure.Content)
	}
}

func TestMessageChangedInPlaceAndAckedIsQuarantined(t *testing.T) {
	t.Parallel()
	store := newLedger()
	_, err := newInbox(t, store).Middleware(ackThen(inPlace(fail)))(newMessage(t.Context(), "a"))
	if err != nil || len(store.quarantined) != 1 || !strings.Contains(store.quarantined[0].Detail, "changed the payload in place") || store.row("a").status != 0 {
		t.Errorf("%v, %+v\n%s", err, store.quarantined, store.story())
	}
}

// What would be completed the second time is another message than the one that arrived.
func TestHandlerIsNotRunAgainWithAPayloadChangedInPlace(t *testing.T) {
	t.Parallel()
	conflict := func(*message.Message) error { return middleware.Contention(errors.New("conflict")) }
	for name, test := range map[string]struct {
		handler func(*message.Message) error
		attempt func() stores.Attempt
	}{
		"conflict":       {conflict, func() stores.Attempt { return &scriptedAttempt{} }},
		"interrupted":    {fail, func() stores.Attempt { return &interruptedAttempt{} }},
		"unknown commit": {succeed, func() stores.Attempt { return &scriptedAttempt{commit: stores.ErrCommitUnknown} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, runs := storeOfAll(test.attempt), 0
				store.resolve = func() (bool, error) { return false, nil }
				ctx := withDelivery(t.Context(), brokers.Delivery{})
				_, err := newInbox(t, store).Middleware(handle(inPlace(func(m *message.Message) error { runs++; return test.handler(m) })))(newMessage(ctx, "a"))
				if err == nil || runs != 1 || len(store.recorded) != 1 {
					t.Fatalf("%v, %d runs, %+v", err, runs, store.recorded)
				}
				if f := store.recorded[0]; f.Attempts != 1 || f.Placement != stores.PlacementRedelivered {
					t.Errorf("recorded %+v", f)
				}
			})
		})
	}
}

// A message without metadata has none, whatever its handler notes in it.
func TestMetadataSetByTheHandlerIsNotKept(t *testing.T) {
	t.Parallel()
	store := newLedger()
	_, err := newInbox(t, store).Middleware(handle(func(m *message.Message) error {
		m.Metadata.Set("tried", "yes")
		return errors.New("boom")
	}))(newMessage(t.Context(), "a"))
	if c := store.row("a").failure.Content; err != nil || len(c.Metadata) != 0 {
		t.Errorf("%v, kept %+v", err, c)
	}
}
