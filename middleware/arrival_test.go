package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// decrypting is a middleware inside the inbox that puts another payload in the place of
// the one that arrived, and leaves nothing else as it was.
func decrypting(m *message.Message) {
	m.UUID += " decrypted"
	m.Payload = append(message.Payload("decrypted "), m.Payload...)
	m.Metadata["encrypted"] = "no"
	delete(m.Metadata, "tenant")
	m.SetContext(context.WithValue(context.Background(), scriptedTx{}, "another"))
}

// Whatever a run makes of its message, the next one does not begin with it.
func TestEveryRunGetsTheMessageAsItArrived(t *testing.T) {
	t.Parallel()
	conflict := func(*message.Message) error { return middleware.Contention(errors.New("conflict")) }
	for name, test := range map[string]struct {
		handler func(*message.Message) error
		attempt func() stores.Attempt
		record  func(n int, f stores.Failure) error
	}{
		"conflict":       {handler: conflict},
		"interrupted":    {handler: fail, attempt: func() stores.Attempt { return &interruptedAttempt{} }},
		"unknown commit": {handler: succeed, attempt: func() stores.Attempt { return &scriptedAttempt{commit: stores.ErrCommitUnknown} }},
		"row changed":    {handler: fail, record: func(int, stores.Failure) error { return stores.ErrChanged }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if test.attempt == nil {
					test.attempt = func() stores.Attempt { return &scriptedAttempt{} }
				}
				store := storeOfAll(test.attempt)
				store.record, store.resolve = test.record, func() (bool, error) { return false, nil }
				m := newMessage(withDelivery(t.Context(), brokers.Delivery{}), "a")
				m.Metadata = message.Metadata{"encrypted": "yes", "tenant": "7"}
				var seen []string
				_, _ = newInbox(t, store).Middleware(handle(func(m *message.Message) error {
					_, open := m.Context().Value(scriptedTx{}).(*scriptedAttempt)
					seen = append(seen, fmt.Sprint(m.UUID, string(m.Payload), maps.Clone(m.Metadata), open))
					decrypting(m)
					return test.handler(m)
				}))(m)
				if len(seen) < 2 {
					t.Fatalf("%d runs", len(seen))
				}
				for _, s := range seen {
					if want := fmt.Sprint("a", "payload of a", message.Metadata{"encrypted": "yes", "tenant": "7"}, true); s != want {
						t.Errorf("a run was given %s, want %s", s, want)
					}
				}
				if m.UUID != "a" || string(m.Payload) != "payload of a" || m.Metadata["encrypted"] != "yes" {
					t.Errorf("a Retry around the inbox is given %+v", m)
				}
			})
		})
	}
}

// Nothing puts back bytes that were written over, so there is no second run, however the
// delivery came to it.
func TestBytesWrittenOverAreRefusedBeforeTheNextRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := storeOfAll(func() stores.Attempt { return &scriptedAttempt{} }), 0
		store.resolve = func() (bool, error) { return false, nil }
		store.record = func(n int, _ stores.Failure) error {
			if n <= 2 {
				return stores.ErrChanged
			}
			return nil
		}
		_, err := newInbox(t, store, redelivered).Middleware(handle(inPlace(func(*message.Message) error {
			if runs++; runs == 1 {
				return errors.New("boom")
			}
			return nil
		})))(newMessage(t.Context(), "a"))
		if err == nil || runs != 1 || len(store.recorded) != 1 || store.recorded[0].Class != stores.ClassConduct {
			t.Errorf("%v, %d runs, recorded %+v", err, runs, store.recorded)
		}
	})
}
