package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// discarded is the row of a message that the broker had when an operator discarded it.
func discarded(id string) stores.Failure {
	f := failedBefore(id, stores.PlacementRedelivered, 1)
	f.Status, f.Content = stores.StatusDiscarded, &stores.Content{State: stores.ContentNone}
	return f
}

// Whatever happens in between, the redelivery is not acked before the content is kept.
func TestDiscardedMessageIsKeptBeforeItIsAcked(t *testing.T) {
	t.Parallel()
	refusing := func(c *middleware.InboxConfig) {
		c.Keep.Codec = &middleware.Codec{
			Name: "away",
			Encode: func(context.Context, middleware.Kept) (middleware.Kept, error) {
				return middleware.Kept{}, errors.New("no key")
			},
			Decode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil },
		}
	}
	for name, test := range map[string]struct {
		configure func(*middleware.InboxConfig)
		fault     string
	}{
		"store":   {func(*middleware.InboxConfig) {}, "keep"},
		"codec":   {refusing, ""},
		"changed": {func(*middleware.InboxConfig) {}, "changed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newLedger()
				store.put(discarded("a"))
				store.fault = func(call string) error {
					switch {
					case call != "keep":
						return nil
					case test.fault == "keep":
						return stores.ErrUnavailable
					case test.fault == "changed":
						return stores.ErrChanged
					}
					return nil
				}
				brief := func(c *middleware.InboxConfig) { c.Hold.Limit = time.Second }
				_, err := newInbox(t, store, test.configure, brief).Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "a"))
				if !errors.Is(err, middleware.ErrNotNow) {
					t.Fatalf("it is acked without having been kept: %v", err)
				}
				store.fault = nil
				if _, err := newInbox(t, store).Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "a")); err != nil {
					t.Fatal(err)
				}
				if c := store.row("a").failure.Content; c.State != stores.ContentKept || string(c.Payload) != "payload of a" || c.UUID != "a" {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}
