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

// boundedStore notes how long its writes may take.
type boundedStore struct {
	*scriptedStore

	left map[string]time.Duration
}

func (s boundedStore) Record(ctx context.Context, f stores.Failure) (int64, error) {
	note(ctx, s.left, "record")
	return s.scriptedStore.Record(ctx, f)
}

func (s boundedStore) Quarantine(ctx context.Context, q stores.Quarantined) error {
	note(ctx, s.left, "quarantine")
	return s.scriptedStore.Quarantine(ctx, q)
}

func note(ctx context.Context, left map[string]time.Duration, call string) {
	if until, ok := ctx.Deadline(); ok {
		left[call] = time.Until(until)
	}
}

// How long a handler may take says nothing about a write, or about a key service.
func TestWritesAndCodecsHaveBoundsOfTheirOwn(t *testing.T) {
	t.Parallel()
	for _, handler := range []time.Duration{100 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			left := make(map[string]time.Duration)
			in := newInbox(t, boundedStore{&scriptedStore{}, left}, func(c *middleware.InboxConfig) {
				c.HandlerTimeout, c.RecordTimeout, c.Keep.Timeout = handler, 7*time.Second, 3*time.Second
				c.Keep.Codec = &middleware.Codec{
					Name: "seal",
					Encode: func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
						note(ctx, left, "encode")
						return k, nil
					},
					Decode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil },
				}
			})
			if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "a")); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "")); err != nil {
				t.Fatal(err)
			}
			if left["record"] != 7*time.Second || left["quarantine"] != 7*time.Second || left["encode"] != 3*time.Second {
				t.Errorf("with a handler of %s: %v", handler, left)
			}
		})
	}
}

func TestDecodingHasABoundOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, left := newLedger(), make(map[string]time.Duration)
		f := failedBefore("a", stores.PlacementParked, 1)
		f.Content = &stores.Content{State: stores.ContentKept, Codec: "seal", UUID: "a"}
		store.put(f)
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.HandlerTimeout, c.Keep.Timeout = time.Hour, 3*time.Second
			c.Keep.Codec = &middleware.Codec{
				Name:   "seal",
				Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) { return k, nil },
				Decode: func(ctx context.Context, k middleware.Kept) (middleware.Kept, error) {
					note(ctx, left, "decode")
					return k, nil
				},
			}
		})
		work(t, in, succeed, func() { <-time.After(10 * time.Second) })
		if left["decode"] != 3*time.Second || store.row("a").status != stores.StatusCompleted {
			t.Errorf("%v, %+v", left, store.row("a"))
		}
	})
}

// What is known to be completed is forgotten with a doubt about the server, and not
// because a claim was late, lost a race, or was told something about its own message.
func TestCacheIsForgottenOnlyWithADoubtAboutTheServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		kept bool
	}{
		{errors.Join(stores.ErrUnavailable, stores.ErrBusy), true},
		{stores.ErrInvalidKey, true},
		{stores.ErrUnavailable, false},
		{stores.ErrNotMigrated, false},
		{errors.New("unexpected"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &scriptedStore{}
			in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Hold.Limit = time.Millisecond })
			h := in.Middleware(handle(func(*message.Message) error { return nil }))
			if _, err := h(newMessage(t.Context(), "known")); err != nil {
				t.Fatal(err)
			}
			store.begin = func(int, stores.Claim) (stores.Attempt, stores.Verdict, error) {
				return nil, stores.Verdict{}, test.err
			}
			_, _ = h(newMessage(t.Context(), "late"))
			if _, err := h(newMessage(t.Context(), "known")); (err == nil) != test.kept {
				t.Errorf("after %v: %v", test.err, err)
			}
		})
	}
}
