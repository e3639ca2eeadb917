package middleware_test

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// bucket is a store of objects that can be away.
type bucket struct {
	mu   sync.Mutex
	down error
	has  map[string][]byte
}

func (b *bucket) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = err
}

func (b *bucket) Put(_ context.Context, name string, content []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down == nil {
		b.has[name] = content
	}
	return b.down
}

func (b *bucket) Get(_ context.Context, name string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	content, ok := b.has[name]
	if b.down == nil && !ok {
		return nil, fs.ErrNotExist
	}
	return content, b.down
}

var errAway = errors.New("the bucket cannot be reached")

func large(ctx context.Context, uuid string) *message.Message {
	m := newMessage(ctx, uuid)
	m.Payload = []byte(strings.Repeat("large ", 1000))
	return m
}

// A large message that fails has a reference in its row, and its retry gets the message.
func TestClaimCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := newLedger(), &bucket{has: make(map[string][]byte)}
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler, c.Keep.Codec = "", claimCheck(b, 100) })
		m := large(inHandler(t, "stock"), "a")
		if _, err := in.Middleware(handle(fail))(m); err != nil {
			t.Fatal(err)
		}
		kept := store.row("a").failure.Content
		if kept.Codec != "claim-check" || len(kept.Payload) > 100 || len(b.has) != 1 {
			t.Errorf("kept are %d bytes with %q, and %d objects", len(kept.Payload), kept.Codec, len(b.has))
		}
		got := ""
		work(t, in, func(m *message.Message) error { got = string(m.Payload); return nil },
			func() { waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted }) })
		if got != string(m.Payload) {
			t.Errorf("the retry got %d bytes", len(got))
		}
	})
}

// While the bucket is away when a message fails, the message stays with the broker, and its
// attempts count. A message that does not fail needs no bucket.
func TestClaimCheckWithoutItsBucketKeepsTheMessageAtTheBroker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b := newLedger(), &bucket{has: make(map[string][]byte), down: errAway}
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Keep.Codec = claimCheck(b, 100) })
		if _, err := in.Middleware(handle(func(*message.Message) error { return nil }))(large(t.Context(), "fine")); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Middleware(handle(fail))(newMessage(t.Context(), "small")); err != nil || store.row("small").failure.Placement != stores.PlacementParked {
			t.Errorf("%v: %s", err, store.story())
		}
		ctx := withDelivery(t.Context(), brokers.Delivery{})
		_, err := in.Middleware(handle(fail))(large(ctx, "a"))
		r := store.row("a")
		if err == nil || !givenBack(ctx).Failed || r.failure.Placement != stores.PlacementRedelivered || r.failure.Attempts != 1 || r.status != stores.StatusPending {
			t.Errorf("%v: %+v", err, r)
		}
		b.fail(nil)
		<-time.After(time.Hour) // it is due
		if _, err := in.Middleware(handle(fail))(large(withDelivery(t.Context(), brokers.Delivery{}), "a")); err != nil || store.row("a").failure.Placement != stores.PlacementParked {
			t.Errorf("with the bucket back: %v: %s", err, store.story())
		}
	})
}

// While the bucket is away when a retry is due, the attempt fails as unreadable, and counts. The
// handler does not run. When the bucket is back, the message completes.
func TestClaimCheckWithoutItsBucketIsUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b, runs := newLedger(), &bucket{has: make(map[string][]byte)}, 0
		in := newInbox(t, store, func(c *middleware.InboxConfig) { c.Handler, c.Keep.Codec = "", claimCheck(b, 100) })
		if _, err := in.Middleware(handle(fail))(large(inHandler(t, "stock"), "a")); err != nil {
			t.Fatal(err)
		}
		b.fail(errAway)
		work(t, in, func(*message.Message) error { runs++; return nil }, func() {
			waitUntil(t, func() bool { return store.row("a").failure.Class == stores.ClassUnreadable })
			if r := store.row("a"); runs > 0 || r.status != stores.StatusPending || !strings.Contains(r.failure.Error, errAway.Error()) {
				t.Errorf("ran %d times: %+v", runs, r)
			}
			b.fail(nil)
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusCompleted })
		})
		if runs != 1 {
			t.Errorf("the handler ran %d times", runs)
		}
	})
}

// An object that is gone for good ends its message as failed, with the reference in its row.
func TestClaimCheckWithoutItsObjectFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, b, runs := newLedger(), &bucket{has: make(map[string][]byte)}, 0
		in := newInbox(t, store, func(c *middleware.InboxConfig) {
			c.Handler, c.Keep.Codec, c.Retry.MaxAttempts = "", claimCheck(b, 100), 3
		})
		if _, err := in.Middleware(handle(fail))(large(inHandler(t, "stock"), "a")); err != nil {
			t.Fatal(err)
		}
		kept := store.row("a").failure.Content.Payload
		b.mu.Lock()
		clear(b.has)
		b.mu.Unlock()
		work(t, in, func(*message.Message) error { runs++; return nil }, func() {
			waitUntil(t, func() bool { return store.row("a").status == stores.StatusFailed })
		})
		if r := store.row("a"); runs > 0 || r.failure.Class != stores.ClassUnreadable || string(kept[1:]) == "" {
			t.Errorf("ran %d times: %+v", runs, r)
		}
	})
}

func TestClaimCheckTellsWhatItHasNotWritten(t *testing.T) {
	t.Parallel()
	dir := directory(t.TempDir())
	codec := claimCheck(dir, 1)
	for _, payload := range []string{"", "x", "e../../etc/passwd", "enone"} {
		if _, err := codec.Decode(t.Context(), middleware.Kept{Payload: []byte(payload)}); err == nil {
			t.Errorf("%q is decoded", payload)
		}
	}
	kept, err := codec.Encode(t.Context(), middleware.Kept{Payload: []byte("large")})
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Put(t.Context(), string(kept.Payload[1:]), []byte("changed")); err != nil {
		t.Fatal(err)
	}
	if _, err := codec.Decode(t.Context(), kept); err == nil {
		t.Error("other content is taken")
	}
}
