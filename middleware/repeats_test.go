package middleware_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// A burst of duplicates is looked up, and a new message among them runs as any other does.
func TestDuplicatesInARowAreLookedUpUntilOneIsNew(t *testing.T) {
	t.Parallel()
	store, ran := newLedger(), make(map[string]int)
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.CacheSize = -1 })
	deliver := in.Middleware(handle(func(m *message.Message) error {
		ran[m.UUID]++
		return nil
	}))
	asks := func(id string) (begins, looks int) {
		begins, looks = store.calls("begin"), store.calls("look")
		if _, err := deliver(newMessage(t.Context(), id)); err != nil {
			t.Fatal(err)
		}
		return store.calls("begin") - begins, store.calls("look") - looks
	}
	want := func(id string, begins, looks int) {
		t.Helper()
		if b, l := asks(id); b != begins || l != looks {
			t.Errorf("%s: %d claims and %d looks, want %d and %d", id, b, l, begins, looks)
		}
	}
	const row = 8
	for i := range 3 * row {
		want(fmt.Sprint(i), 1, 0)
	}
	for burst := range 2 {
		for i := range row {
			want(fmt.Sprint(i), 1, 0)
		}
		for i := range 2 * row {
			want(fmt.Sprint(row+i), 0, 1)
		}
		want(fmt.Sprint("new ", burst), 1, 1)
		want(fmt.Sprint("another ", burst), 1, 0)
		for i := range row - 1 { // one too few
			want(fmt.Sprint(i), 1, 0)
		}
		want(fmt.Sprint("last ", burst), 1, 0)
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}
