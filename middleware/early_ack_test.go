package middleware_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func ackThen(f func(*message.Message) error) message.HandlerFunc {
	return handle(func(m *message.Message) error {
		m.Ack()
		return f(m)
	})
}

// Nobody delivers it again, so it is parked even if the policy leaves messages to the
// broker.
func TestEarlyAckThatFailsIsParked(t *testing.T) {
	t.Parallel()
	for _, configure := range []func(*middleware.InboxConfig){func(*middleware.InboxConfig) {}, redelivered} {
		store, end := newLedger(), &ends{}
		_, err := newInbox(t, store, configure, end.configure).Middleware(ackThen(fail))(newMessage(t.Context(), "a"))
		r := store.row("a")
		if err != nil || r.failure.Placement != stores.PlacementParked || string(r.failure.Content.Payload) != "payload of a" || r.failure.DueIn == 0 {
			t.Errorf("%v, %+v", err, r)
		}
		if !errors.Is(end.last().Err, middleware.ErrAckedEarly) {
			t.Error(end.last())
		}
	}
}

func TestEarlyAckThatCannotBeParkedIsQuarantined(t *testing.T) {
	t.Parallel()
	for name, keep := range map[string]middleware.KeepConfig{
		"off":       {Off: true},
		"too large": {MaxBytes: 1},
		"one-way":   {Codec: &middleware.Codec{Name: "hide", Encode: hide}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newLedger()
			in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep = keep })
			_, err := in.Middleware(ackThen(fail))(newMessage(t.Context(), "a"))
			if err != nil || len(store.quarantined) != 1 || store.quarantined[0].Reason != stores.ReasonAckedEarly {
				t.Errorf("%v, %+v, %s", err, store.quarantined, store.story())
			}
		})
	}
}

func TestEarlyAckThatSucceedsIsCompleted(t *testing.T) {
	t.Parallel()
	store, end := newLedger(), &ends{}
	_, err := newInbox(t, store, end.configure).Middleware(ackThen(func(*message.Message) error { return nil }))(newMessage(t.Context(), "a"))
	if err != nil || store.row("a").status != stores.StatusCompleted || !errors.Is(end.last().Err, middleware.ErrAckedEarly) {
		t.Error(err, end.last())
	}
}

// The database ended the attempt, so it is to be made again; but who acked and then
// panicked will not be delivered again.
func TestEarlyAckThatPanicsInAnInterruptedAttemptIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.attempt = func(a stores.Attempt) stores.Attempt { return interruptedLedgerAttempt{a} }
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			_, _ = newInbox(t, store).Middleware(ackThen(func(*message.Message) error { panic("boom") }))(newMessage(t.Context(), "a"))
		}()
		if store.row("a").status == 0 && len(store.quarantined) == 0 {
			t.Errorf("the message is lost:\n%s", store.story())
		}
	})
}

type interruptedLedgerAttempt struct{ stores.Attempt }

func (interruptedLedgerAttempt) Interrupted() error { return errors.New("the server restarts") }

// An attempt counted before it began, which the database has ended, was no crash.
func TestPanicInAnInterruptedAttemptIsNoCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.attempt = func(a stores.Attempt) stores.Attempt { return interruptedLedgerAttempt{a} }
		ctx := brokers.WithDelivery(t.Context(), brokers.Delivery{Suspect: true})
		func() {
			defer func() { _ = recover() }()
			_, _ = newInbox(t, store).Middleware(panickingHandler)(newMessage(ctx, "a"))
		}()
		if r := store.row("a"); r.presumed || r.failure.Attempts != 0 || r.failure.Uncounted != 1 {
			t.Errorf("%+v\n%s", r, store.story())
		}
	})
}
