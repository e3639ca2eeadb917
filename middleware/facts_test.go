package middleware_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// keyed are the facts of a record of Kafka, with a native id besides.
func keyed(key []byte) brokers.Delivery {
	return brokers.Delivery{
		Topic: "orders", NativeID: "1042-0", Coordinates: "orders/3/1042", Key: key,
		Time: time.Unix(1_790_000_000, 123_456_789), Count: 1,
	}
}

// A handler finds on the retry what it found on the first attempt: the key decides what a
// tombstone is about.
func TestRetryHasTheFactsOfTheDelivery(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key, payload []byte
		codec        *middleware.Codec
		arrival      bool // behind middleware.Arrival
	}{
		"tombstone":                {[]byte("customer-7"), nil, nil, false},
		"tombstone, sealed":        {[]byte("customer-7"), nil, sealing(), false},
		"tombstone, at Arrival":    {[]byte("customer-7"), nil, nil, true},
		"empty key and payload":    {[]byte{}, []byte{}, nil, false},
		"empty ones, sealed":       {[]byte{}, []byte{}, sealing(), false},
		"no key":                   {nil, []byte("payload"), nil, false},
		"no key, sealed":           {nil, []byte("payload"), sealing(), false},
		"binary key, sealed twice": {[]byte("\x00\xff"), []byte("payload"), sealing(), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store, want := newLedger(), keyed(test.key)
				in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler, c.Keep.Codec = "", test.codec })
				var runs int
				handler := func(m *message.Message) error {
					got, known := brokers.DeliveryOf(m)
					if !known || !same(got.Key, want.Key) || got.NativeID != want.NativeID || !got.Time.Equal(want.Time) ||
						got.Topic != want.Topic || got.Coordinates != want.Coordinates {
						t.Errorf("run %d: %#v", runs, got)
					}
					if !same(m.Payload, test.payload) {
						t.Errorf("run %d: the payload is %#v", runs, m.Payload)
					}
					if runs++; runs < 4 {
						m.Payload = []byte{}
						m.SetContext(context.WithoutCancel(t.Context()))
						return errors.New("boom")
					}
					return nil
				}
				m := message.NewMessage("a", test.payload)
				m.SetContext(brokers.WithDelivery(inHandler(t, "stock"), m, want))
				first := in.Middleware(handle(handler))
				if test.arrival {
					first = middleware.Arrival(first)
				}
				if _, err := first(m); err != nil {
					t.Fatal(err)
				}
				if c := store.row("a").failure.Content; test.codec != nil && (string(c.Facts.Key) == string(test.key) || string(c.Payload) == string(test.payload)) {
					t.Errorf("kept unsealed: %+v", c)
				}
				work(t, in, handler, func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) })
				if runs != 4 {
					t.Errorf("%d runs", runs)
				}
			})
		})
	}
}

func same(a, b []byte) bool { return string(a) == string(b) && (a == nil) == (b == nil) }

// sealing is a codec that does not tell nil from empty, as ciphers do not.
func sealing() *middleware.Codec {
	seal := func(b []byte) []byte { return append([]byte("sealed:"), b...) }
	open := func(b []byte) []byte { return append([]byte(nil), b[len("sealed:"):]...) }
	return &middleware.Codec{
		Name: "seal",
		Encode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
			return middleware.Kept{Key: seal(k.Key), Metadata: k.Metadata, Payload: seal(k.Payload)}, nil
		},
		Decode: func(_ context.Context, k middleware.Kept) (middleware.Kept, error) {
			return middleware.Kept{Key: open(k.Key), Metadata: k.Metadata, Payload: open(k.Payload)}, nil
		},
	}
}

func TestQuarantineKeepsTheFacts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		codec *middleware.Codec
		key   string
	}{
		"plain":    {nil, "customer-7"},
		"sealed":   {sealing(), "sealed:customer-7"},
		"redacted": {&middleware.Codec{Name: "hide", Encode: hide}, ""},
	} {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep.Codec = test.codec })
		want := keyed([]byte("customer-7"))
		m := message.NewMessage("", []byte("payload"))
		m.SetContext(brokers.WithDelivery(t.Context(), m, want))
		if _, err := in.Middleware(handle(mustNotRun(t)))(m); err != nil {
			t.Fatal(err)
		}
		if f := store.quarantined[0].Facts; string(f.Key) != test.key || f.NativeID != want.NativeID || !f.Time.Equal(want.Time) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// A key may be as large as a payload, and counts as much.
func TestKeyCountsForTheSize(t *testing.T) {
	t.Parallel()
	for limit, placement := range map[int]stores.Placement{11: stores.PlacementRedelivered, 12: stores.PlacementParked} {
		store := newLedger()
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep.MaxBytes = limit })
		m := message.NewMessage("a", []byte("payload"))
		m.SetContext(brokers.WithDelivery(t.Context(), m, brokers.Delivery{Key: []byte("key"), NativeID: "id"}))
		_, _ = in.Middleware(handle(fail))(m)
		if r := store.row("a").failure; r.Placement != placement || placement == stores.PlacementRedelivered && r.Content.Facts.Key != nil {
			t.Errorf("MaxBytes %d: %s, %+v", limit, r.Placement, r.Content)
		}
	}
}
