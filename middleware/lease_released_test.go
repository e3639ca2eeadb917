package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// letOut releases what is in quarantine, as stores do.
func (l *ledger) letOut() (ids []string) {
	for i, q := range l.quarantined {
		f := failedBefore("", stores.PlacementParked, 0)
		f.Key, f.Fingerprint = stores.Key{Consumer: q.Consumer, ID: stores.ReleasedID(int64(i + 1))}, q.Fingerprint
		f.Content = &stores.Content{State: stores.ContentKept, UUID: q.UUID, Metadata: q.Metadata, Payload: q.Payload, Facts: q.Facts, Codec: q.Codec}
		l.put(f)
		ids = append(ids, rawID(f.Key))
	}
	return ids
}

// pastPurge finds any message older than what was purged.
type pastPurge struct{ *ledger }

func (pastPurge) Look(context.Context, stores.Key, stores.Fingerprint) (stores.Verdict, error) {
	return stores.Verdict{Outcome: stores.Stale, PurgedThrough: time.Now()}, nil
}

// Who was given the key of a message that is in quarantine now is given it again when the
// message is released. Another message under the same id has a key of its own.
func TestReleasedMessageKeepsItsIdempotencyKey(t *testing.T) {
	t.Parallel()
	for reason, same := range map[stores.Reason]bool{stores.ReasonAckedEarly: true, stores.ReasonStale: true, stores.ReasonConflict: false} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, provider := newLedger(), &outside{}
				in := newInbox(t, store, leasing(), func(c *middleware.InboxConfig) { c.Keep.Off = true })
				deliver := func(in *middleware.Inbox, m *message.Message, h message.HandlerFunc) {
					if _, err := in.Middleware(h)(m); err != nil {
						t.Fatal(err)
					}
				}
				switch reason {
				case stores.ReasonAckedEarly:
					deliver(in, newMessage(t.Context(), "a"), ackThen(func(m *message.Message) error { return errors.Join(provider.pay(m), errors.New("odd")) }))
				case stores.ReasonStale:
					deliver(newInbox(t, newLedger(), leasing()), newMessage(t.Context(), "a"), handle(provider.pay))
					deliver(newInbox(t, pastPurge{store}, leasing()), newMessage(t.Context(), "a"), handle(provider.pay))
				default:
					other := newMessage(t.Context(), "a")
					other.Payload = []byte("another one")
					deliver(in, newMessage(t.Context(), "a"), handle(provider.pay))
					deliver(in, other, handle(provider.pay))
				}
				if len(store.quarantined) != 1 || store.quarantined[0].Reason != reason || len(provider.keys) != 1 {
					t.Fatalf("%+v, %v", store.quarantined, provider.keys)
				}
				id := store.letOut()[0]
				failed := false
				work(t, in, func(m *message.Message) error {
					if err := provider.pay(m); err != nil || failed {
						return err
					}
					failed = true
					return errors.New("odd")
				}, func() { waitUntil(t, func() bool { return store.row(id).status == stores.StatusCompleted }) })
				if want := map[bool]int{true: 1, false: 2}[same]; len(provider.keys) != 3 || provider.distinct() != want {
					t.Errorf("the keys are %v, want %d", provider.keys, want)
				}
			})
		})
	}
}

// A handler that has acked its message, and heeds the shutdown, is interrupted: the message is
// run again from what is kept of it, or is an operator's where its effect may not be repeated.
func TestEarlyAckUnderALeaseAtTheShutdown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stop, unkept bool
		status       stores.Status
		class        stores.Class
		result       middleware.Result
	}{
		"retry":           {false, false, stores.StatusPending, stores.ClassInterrupted, middleware.ResultParked},
		"stop":            {true, false, stores.StatusFailed, stores.ClassUnconfirmed, middleware.ResultFailed},
		"retry, not kept": {false, true, stores.StatusFailed, stores.ClassInterrupted, middleware.ResultQuarantined},
		"stop, not kept":  {true, true, stores.StatusFailed, stores.ClassUnconfirmed, middleware.ResultQuarantined},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, end, provider := newLedger(), &ends{}, &outside{}
				lease := leasing()
				if test.stop {
					lease = leasing(stopping)
				}
				ctx, stop := context.WithCancel(t.Context())
				in := newInbox(t, store, lease, end.configure, func(c *middleware.InboxConfig) { c.Keep.Off = test.unkept })
				_, err := in.Middleware(ackThen(func(m *message.Message) error {
					stop()
					return errors.Join(provider.pay(m), context.Canceled)
				}))(newMessage(ctx, "a"))
				r := store.row("a")
				if err != nil || end.last().Result != test.result || r.status != test.status || r.failure.Class != test.class || r.presumed || r.failure.Holder != "" {
					t.Fatalf("%v, %+v, %+v\n%s", err, end.last(), r, store.story())
				}
				if quarantined := len(store.quarantined) == 1; quarantined != test.unkept {
					t.Errorf("%d in quarantine", len(store.quarantined))
				}
				if test.status != stores.StatusPending {
					return
				}
				work(t, in, provider.pay, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) })
				if len(provider.keys) != 2 || provider.distinct() != 1 {
					t.Errorf("the keys are %v", provider.keys)
				}
			})
		})
	}
}
