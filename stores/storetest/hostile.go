package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// hostile is a message that somebody sends by mistake or on purpose, and its one
// outcome: completed, or kept in quarantine for a reason.
type hostile struct {
	name   string
	id     string
	size   int               // of the payload, which is otherwise the name
	fields map[string]string // metadata
	facts  brokers.Delivery
	reason stores.Reason // "": completed
	huge   bool          // delivered once only
}

func hostileMessages() []hostile {
	undecodable := brokers.Delivery{Undecodable: errors.New("not a message: \x00\xff")}
	return []hostile{
		{name: "empty id", reason: stores.ReasonNoKey},
		{name: "empty id, other payload", reason: stores.ReasonNoKey},
		{name: "empty id, metadata", fields: map[string]string{"key": "value"}, reason: stores.ReasonNoKey},
		{name: "longest id", id: strings.Repeat("i", 255)},
		{name: "id of one byte too many", id: strings.Repeat("i", 256), reason: stores.ReasonKeyTooLong},
		{name: "id of 10 kB", id: strings.Repeat("i", 10_000), reason: stores.ReasonKeyTooLong},
		{name: "id of 10 kB, another", id: strings.Repeat("i", 9_999) + "I", reason: stores.ReasonKeyTooLong},
		{name: "id of 10 kB of noise", id: string(noise(10_000)), reason: stores.ReasonKeyTooLong},
		{name: "id with NUL", id: "hostile\x00"},
		{name: "id without NUL", id: "hostile"},
		{name: "id in capitals", id: "HOSTILE"},
		{name: "id with a space", id: "hostile "},
		{name: "id of invalid UTF-8", id: "hostile\xff"},
		{name: "id that is SQL", id: "'; DELETE FROM millpond_inbox; --"},
		{name: "empty payload", id: "empty payload", size: -1},
		{name: "binary payload", id: "binary payload", size: 1 << 20},
		{name: "payload at the limit", id: "payload at the limit", size: 16 << 20, huge: true},
		{name: "1,000 headers", id: "1,000 headers", fields: fields(1000, "value")},
		{name: "10,000 headers", id: "10,000 headers", fields: fields(10_000, "value"), reason: stores.ReasonTooLarge},
		{name: "binary headers", id: "binary headers", fields: map[string]string{"\x00": "\xff", "": "", "a\r\nb": "c\x00d", "traceparent": "00-\xff"}},
		{name: "invalid trace parent", id: "invalid trace parent", fields: map[string]string{"traceparent": "00-00000000000000000000000000000000-0000000000000000-00"}},
		{name: "undecodable", facts: undecodable, reason: stores.ReasonUndecodable},
		{name: "undecodable, other bytes", facts: undecodable, reason: stores.ReasonUndecodable},
		{name: "undecodable with an id", id: "undecodable", facts: undecodable, reason: stores.ReasonUndecodable},
		{name: "undecodable without a byte", size: -1, facts: undecodable, reason: stores.ReasonUndecodable},
		{name: "headers of 1 MB", id: "headers of 1 MB", fields: fields(10, string(noise(100_000))), reason: stores.ReasonTooLarge},
		{name: "payload over the limit", id: "payload over the limit", size: 16<<20 + 1, reason: stores.ReasonTooLarge, huge: true},
		{name: "payload of 100 MB", id: "payload of 100 MB", size: 100_000_000, reason: stores.ReasonTooLarge, huge: true},
	}
}

func fields(n int, value string) map[string]string {
	f := make(map[string]string, n)
	for i := range n {
		f[fmt.Sprint("header ", i)] = value
	}
	return f
}

func (h *hostile) message() *message.Message {
	payload := []byte(h.name)
	switch {
	case h.size < 0:
		payload = nil
	case h.size > 0:
		payload = noise(h.size)
	}
	msg := message.NewMessage(h.id, payload)
	for name, value := range h.fields {
		msg.Metadata.Set(name, value)
	}
	return msg
}

func hostileChecks() []check {
	return []check{
		{name: "messages", run: hostileAll},
		{name: "places", run: hostilePlaces},
	}
}

// hostileAll sends all of them through one inbox, so that any two that are taken for
// each other show.
func hostileAll(b *bench) {
	in := b.service(b.open(), func(c *middleware.InboxConfig) {
		if b.h.Largest > 0 {
			c.Hold.Limit = 200 * time.Millisecond
		}
	})
	completed := 0
	var kept []hostile
	for _, m := range hostileMessages() {
		msg := m.message()
		handler := in.Middleware(b.effect(m.name))
		tooLarge := b.h.Largest > 0 && m.size > b.h.Largest && m.reason != ""
		for range m.times() {
			if tooLarge {
				if a := b.deliverWith(handler, msg, m.facts); a.acked || !errors.Is(a.err, stores.ErrTooLarge) {
					b.tb.Errorf("%s: acked %t, %v, though the database cannot keep it", m.name, a.acked, a.err)
				}
				continue
			}
			if a := b.deliverWith(handler, msg, m.facts); !a.acked {
				b.tb.Errorf("%s: not acked, so it comes for ever: %v", m.name, a.err)
			}
		}
		effects := b.effects(m.name)
		if m.reason != "" {
			if !tooLarge {
				kept = append(kept, m)
			}
			if len(effects) > 0 {
				b.tb.Errorf("%s: the handler ran: %v", m.name, effects)
			}
			continue
		}
		completed++
		if len(effects) != 1 || !b.completed(messageKey(b.tb, msg)) {
			b.tb.Errorf("%s: effects %v are committed, want one and a completed row", m.name, effects)
		}
	}
	if rows := b.rows(); len(rows) != completed {
		b.tb.Errorf("%d messages left %d rows", completed, len(rows))
	}
	rows := b.quarantined()
	if len(rows) != len(kept) {
		b.tb.Fatalf("%d messages left %d rows in quarantine", len(kept), len(rows))
	}
	for i, m := range kept {
		b.keptWhole(m, rows[i])
	}
}

func (h *hostile) times() int {
	if h.huge {
		return 1
	}
	return 3
}

// keptWhole fails unless the row is the message, whole.
func (b *bench) keptWhole(m hostile, r stores.QuarantineRow) {
	b.tb.Helper()
	msg := m.message()
	if r.Reason != m.reason || r.Seen != m.times() || r.Topic != topic || r.Detail == "" {
		b.tb.Errorf("%s: kept as %s, seen %d times, topic %q, detail %q; want %s, %d times", m.name, r.Reason, r.Seen, r.Topic, r.Detail, m.reason, m.times())
	}
	if r.UUID != m.id || !bytes.Equal(r.Payload, msg.Payload) || !maps.Equal(r.Metadata, msg.Metadata) {
		b.tb.Errorf("%s: kept with an id of %d bytes, %d bytes of payload and %d headers, want %d, %d and %d, unchanged",
			m.name, len(r.UUID), len(r.Payload), len(r.Metadata), len(m.id), len(msg.Payload), len(msg.Metadata))
	}
}

// hostilePlaces: what a broker says about a message's place is only text.
func hostilePlaces(b *bench) {
	in := b.service(b.open())
	for i, place := range []string{"a\x00b", "\xff", strings.Repeat("long/", 10_000), "'; DROP TABLE millpond_quarantine; --"} {
		id := fmt.Sprint("place ", i)
		facts := brokers.Delivery{Coordinates: place, NativeID: place, Key: []byte(place), Count: -1}
		if a := b.deliverWith(in.Middleware(b.effect(id)), message.NewMessage(id, nil), facts); !a.acked {
			b.tb.Errorf("%.20q: not acked: %v", place, a.err)
		}
		if got := b.effects(id); len(got) != 1 {
			b.tb.Errorf("%.20q: effects %v are committed, want one", place, got)
		}
		msg := message.NewMessage("", []byte(id))
		for range 2 {
			if a := b.deliverWith(in.Middleware(b.effect(id)), msg, facts); !a.acked {
				b.tb.Errorf("%.20q: not acked: %v", place, a.err)
			}
		}
		rows := b.quarantined()
		if len(rows) != i+1 || rows[i].Seen != 2 || rows[i].Coordinates == "" {
			b.tb.Errorf("%.20q: kept as %+v", place, rows)
		}
	}
}
