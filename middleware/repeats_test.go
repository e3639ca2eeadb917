package middleware_test

import (
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
)

// While most messages are duplicates they are looked up, and a new one among them runs as any other
// does.
func TestMessagesAreLookedUpWhileMostAreDuplicates(t *testing.T) {
	t.Parallel()
	store, ran := newLedger(), make(map[string]int)
	in := newInbox(t, store, func(c *middleware.InboxConfig) { c.CacheSize = -1 })
	deliver := in.Middleware(handle(func(m *message.Message) error {
		ran[m.UUID]++
		return nil
	}))
	sent := 0
	asks := func(duplicate bool) (begins, looks int) {
		id := "0"
		if !duplicate {
			id = fmt.Sprint(sent)
			sent++
		}
		begins, looks = store.calls("begin"), store.calls("look")
		if _, err := deliver(newMessage(t.Context(), id)); err != nil {
			t.Fatal(err)
		}
		return store.calls("begin") - begins, store.calls("look") - looks
	}
	want := func(what string, n int, duplicate bool, begins, looks int) {
		t.Helper()
		for i := range n {
			if b, l := asks(duplicate); b != begins || l != looks {
				t.Errorf("%s, %d: %d claims and %d looks, want %d and %d", what, i, b, l, begins, looks)
			}
		}
	}
	for range 2 {
		want("new messages", 30, false, 1, 0)
		want("the first duplicates", 10, true, 1, 0)
		asks(true)
		want("more of them", 30, true, 0, 1)
		want("new among them", 1, false, 1, 1)
		for range 20 {
			want("with one new in eight, a duplicate", 7, true, 0, 1)
			want("with one new in eight, the new one", 1, false, 1, 1)
		}
		for range 4 {
			asks(false)
		}
	}
	want("new messages at last", 30, false, 1, 0)
	for range 20 {
		want("every other is new", 1, false, 1, 0)
		want("every other is a duplicate", 1, true, 1, 0)
	}
	for id, n := range ran {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}
