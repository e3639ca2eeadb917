package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// reverse is a codec that changes all of a message and can undo it.
func reverse() *middleware.Codec {
	turn := func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
		turned := middleware.Kept{Metadata: message.Metadata{}, Payload: reversed(k.Payload)}
		for name, value := range k.Metadata {
			turned.Metadata[name] = string(reversed([]byte(value)))
		}
		return turned, nil
	}
	return &middleware.Codec{Name: "reverse", Encode: turn, Decode: turn}
}

func reversed(b []byte) []byte {
	r := make([]byte, 0, len(b))
	for i := len(b); i > 0; i-- {
		r = append(r, b[i-1])
	}
	return r
}

func hide(context.Context, middleware.Kept) (middleware.Kept, error) {
	return middleware.Kept{Payload: []byte("hidden")}, nil
}

func TestCodecGoesBothWays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler, c.Keep.Codec = "", reverse() })
		m := newMessage(inHandler(t, "stock"), "a")
		m.Metadata.Set("event", "placed")
		if _, err := in.Middleware(handle(fail))(m); err != nil {
			t.Fatal(err)
		}
		kept := store.row("a").failure.Content
		if kept.Codec != "reverse" || string(kept.Payload) != "a fo daolyap" || kept.Metadata["event"] != "decalp" {
			t.Errorf("kept %+v", kept)
		}
		var got *message.Message
		work(t, in, func(m *message.Message) error {
			got = m
			return nil
		}, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) })
		if got == nil || string(got.Payload) != "payload of a" || got.Metadata["event"] != "placed" || got.UUID != "a" {
			t.Errorf("restored as %+v", got)
		}
	})
}

func TestMessageIsHeldUntilItIsEncoded(t *testing.T) {
	t.Parallel()
	for _, trouble := range []func() error{
		func() error { return errors.New("no key service") },
		func() error { panic("no key service") },
	} {
		synctest.Test(t, func(t *testing.T) {
			tried, runs := 0, 0
			store := newLedger()
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Keep.Codec = &middleware.Codec{Name: "slow", Decode: hide, Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
					if tried++; tried < 4 {
						return k, trouble()
					}
					return k, nil
				}}
			})
			_, err := in.Middleware(handle(func(*message.Message) error { runs++; return errors.New("boom") }))(newMessage(t.Context(), "a"))
			if err != nil || tried != 4 || runs != 1 || store.row("a").failure.Placement != stores.PlacementParked {
				t.Errorf("%v, encoded %d times, ran %d times: %s", err, tried, runs, store.story())
			}
		})
	}
}

// A codec that does not take one message must not make it run for ever: the attempts
// count, and the broker keeps the message meanwhile.
func TestFailuresOfAMessageThatIsNeverEncodedAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, runs := newLedger(), 0
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Keep.Codec = &middleware.Codec{Name: "json", Decode: hide, Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
				return k, errors.New("no JSON")
			}}
		})
		for attempt := 1; attempt <= 3; attempt++ {
			ctx := withDelivery(t.Context(), brokers.Delivery{})
			_, err := in.Middleware(handle(func(*message.Message) error { runs++; return errors.New("boom") }))(newMessage(ctx, "a"))
			r := store.row("a")
			if err == nil || !givenBack(ctx).Failed || runs != attempt || r.failure.Attempts != attempt || r.status != stores.StatusPending {
				t.Fatalf("%v, %d runs, %+v\n%s", err, runs, r, store.story())
			}
			if r.failure.Placement != stores.PlacementRedelivered || r.failure.Content.Payload != nil {
				t.Errorf("kept %+v", r.failure.Content)
			}
		}
	})
}

// What cannot be read back is a failure like others, until the budget is spent.
func TestMessageThatCannotBeDecodedHasFailed(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]*middleware.Codec{
		"error": {Name: "reverse", Encode: hide, Decode: func(context.Context, middleware.Kept) (middleware.Kept, error) {
			return middleware.Kept{}, errors.New("the key is gone")
		}},
		"panic": {Name: "reverse", Encode: hide, Decode: func(context.Context, middleware.Kept) (middleware.Kept, error) {
			panic("the key is gone")
		}},
		"other codec": {Name: "other", Encode: hide, Decode: hide},
		"none":        nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := newLedger()
				f := failedBefore("a", stores.PlacementParked, 1)
				f.Content = &stores.Content{State: stores.ContentKept, UUID: "a", Codec: "reverse", Payload: []byte("a fo daolyap")}
				store.put(f)
				store.put(failedBefore("healthy", stores.PlacementParked, 1))
				letters := &copies{}
				in := newInbox(t, store, withCopies(letters), func(c *middleware.InboxConfig) { c.Keep.Codec, c.Retry.MaxAttempts = codec, 3 })
				work(t, in, func(m *message.Message) error {
					if m.UUID == "a" {
						t.Error("it ran")
					}
					return nil
				}, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusFailed }) })
				r := store.row("a")
				if r.failure.Class != stores.ClassUnreadable || r.failure.Attempts != 3 || !bytes.Equal(r.failure.Content.Payload, f.Content.Payload) {
					t.Errorf("%+v", r)
				}
				if !strings.Contains(r.failure.Error, "[no copy: ") || letters.tried != 0 {
					t.Errorf("its copy was published %d times, and its row says %q", letters.tried, r.failure.Error)
				}
				if store.row("healthy").status != stores.StatusCompleted {
					t.Error("it stopped others")
				}
			})
		})
	}
}

// Less than all of a message cannot be run again: the broker must keep it.
func TestMessageOfWhichLessIsKeptIsNotParked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		keep    middleware.KeepConfig
		state   stores.ContentState
		payload string // of the dead letter
	}{
		"off":       {middleware.KeepConfig{Off: true}, stores.ContentOff, ""},
		"too large": {middleware.KeepConfig{MaxBytes: 17}, stores.ContentTooLarge, ""},
		"one-way":   {middleware.KeepConfig{Codec: &middleware.Codec{Name: "hide", Encode: hide}}, stores.ContentOneWay, "hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := newLedger()
			in := newInbox(t, store, func(c *middleware.InboxConfig) {
				c.Keep, c.Retry.MaxAttempts = test.keep, 2
			})
			ctx := withDelivery(t.Context(), brokers.Delivery{})
			m := newMessage(ctx, "a")
			m.Metadata.Set("event", "e") // 12 + 6 bytes
			if _, err := in.Middleware(handle(fail))(m); err == nil || !givenBack(ctx).Failed {
				t.Errorf("%v, %+v", err, givenBack(ctx))
			}
			r := store.row("a")
			if r.failure.Placement != stores.PlacementRedelivered || r.failure.Content.State != test.state || r.failure.Content.Payload != nil {
				t.Errorf("%+v, %+v", r, r.failure.Content)
			}
			store.rows["a"].due = store.rows["a"].first
			_, err := in.Middleware(handle(fail))(m)
			r = store.row("a")
			if err != nil || r.status != stores.StatusFailed || r.failure.Content.State != test.state || string(r.failure.Content.Payload) != test.payload {
				t.Errorf("%v, %+v, %+v", err, r, r.failure.Content)
			}
		})
	}
}

func TestMessageOfTheLargestSizeIsParked(t *testing.T) {
	t.Parallel()
	store := newLedger()
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep.MaxBytes = 18 })
	m := newMessage(t.Context(), "a")
	m.Metadata.Set("event", "e")
	if _, err := in.Middleware(handle(fail))(m); err != nil || store.row("a").failure.Placement != stores.PlacementParked {
		t.Error(err, store.story())
	}
}

func TestQuarantineGoesThroughTheCodec(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		codec   *middleware.Codec
		payload string
		oneWay  bool
	}{
		{reverse(), " fo daolyap", false},
		{&middleware.Codec{Name: "hide", Encode: hide}, "hidden", true},
	} {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep.Codec = test.codec })
		if _, err := in.Middleware(handle(mustNotRun(t)))(newMessage(t.Context(), "")); err != nil {
			t.Fatal(err)
		}
		if q := store.quarantined[0]; string(q.Payload) != test.payload || q.Codec != test.codec.Name || q.OneWay != test.oneWay {
			t.Errorf("%+v", q)
		}
	}
}
