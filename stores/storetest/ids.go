package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// namedID is a message id that a store must keep apart from every other one.
type namedID struct {
	name string // also the effect key
	id   string
}

// byteExact are ids of which some database, collation, driver or encoding would make
// two into one, or one into an error.
func byteExact() []namedID {
	ids := []namedID{
		{"lower case", "order-a"},
		{"upper case", "ORDER-A"},
		{"mixed case", "Order-A"},
		{"trailing space", "order-a "},
		{"two trailing spaces", "order-a  "},
		{"leading space", " order-a"},
		{"trailing tab", "order-a\t"},
		{"trailing line feed", "order-a\n"},
		{"CRLF", "order-a\r\nX-Header: 1"},
		{"trailing NUL", "order-a\x00"},
		{"NUL inside", "order\x00-a"},
		{"NUL inside, other tail", "order\x00-b"},
		{"only NUL", "\x00"},
		{"two NUL", "\x00\x00"},
		{"one space", " "},
		{"one byte", "a"},
		{"one upper case byte", "A"},
		{"byte ff", "\xff"},
		{"byte fe", "\xfe"},
		{"invalid UTF-8", "order-\xc3\x28"},
		{"other invalid UTF-8", "order-\xa0\xa1"},
		{"cut UTF-8", "order-\xe2\x82"},
		{"surrogate", "order-\xed\xa0\x80"},
		{"replacement character", "order-\uFFFD"},
		{"two replacement characters", "order-\uFFFD\uFFFD"},
		{"composed accent", "caf\u00e9"},
		{"decomposed accent", "cafe\u0301"},
		{"without accent", "cafe"},
		{"upper case accent", "CAF\u00c9"},
		{"sharp s", "stra\u00dfe"},
		{"double s", "strasse"},
		{"dotless i", "\u0131d"},
		{"i", "id"},
		{"upper case I", "ID"},
		{"fullwidth", "\uff41"},
		{"zero width space", "order-a\u200b"},
		{"byte order mark", "\uFEFForder-a"},
		{"right to left override", "order-\u202ea"},
		{"emoji", "order-\U0001F600"},
		{"other emoji", "order-\U0001F601"},
		{"number", "1"},
		{"number with a zero", "01"},
		{"number with a point", "1.0"},
		{"number with an exponent", "1e0"},
		{"null", "NULL"},
		{"hexadecimal of an id", `\x6f72646572`},
		{"what it is of", "order"},
		{"escaped NUL", `order\x00-a`},
		{"octal", `order\000-a`},
		{"percent", "order%"},
		{"underscore", "order_a"},
		{"quote", "o'rder"},
		{"two quotes", "o''rder"},
		{"double quote", `o"rder`},
		{"backslash", `order\`},
		{"two backslashes", `order\\`},
		{"SQL", "'; DROP TABLE millpond_inbox; --"},
		{"parameter", "$1"},
		{"question mark", "?"},
		{"lower case UUID", "0190163d-8694-739b-aea5-966c26f8ad91"},
		{"upper case UUID", "0190163D-8694-739B-AEA5-966C26F8AD91"},
		{"UUID without dashes", "0190163d8694739baea5966c26f8ad91"},
		{"bytes of that UUID", "\x01\x90\x16\x3d\x86\x94\x73\x9b\xae\xa5\x96\x6c\x26\xf8\xad\x91"},
	}
	random := make([]byte, stores.MaxIDBytes)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(random); i++ {
		random[i] = byte(r.Uint32())
	}
	long := string(random)
	return append(ids,
		namedID{"longest, compressible", strings.Repeat("a", stores.MaxIDBytes)},
		namedID{"longest, compressible, other end", strings.Repeat("a", stores.MaxIDBytes-1) + "b"},
		namedID{"one shorter", strings.Repeat("a", stores.MaxIDBytes-1)},
		namedID{"longest, random", long},
		namedID{"longest, random, other end", long[:len(long)-1] + string([]byte{long[len(long)-1] ^ 1})},
		namedID{"longest, NUL", strings.Repeat("\x00", stores.MaxIDBytes)},
	)
}

func idChecks() []check {
	return []check{
		{name: "claimed byte by byte", run: claimedByteByByte},
		{name: "held byte by byte", run: heldByteByByte},
		{name: "kept in quarantine byte by byte", run: quarantinedByteByByte},
		{name: "through the inbox byte by byte", run: inboxByteByByte},
		{name: "invalid keys", run: invalidKeys},
	}
}

func claimedByteByByte(b *bench) {
	store := b.open()
	ids := byteExact()
	for _, id := range ids {
		attempt, verdict := b.begin(store, claimFor(id.id, id.name))
		if verdict.Outcome != stores.Claimed {
			b.tb.Errorf("%s: %q is new, and Begin = %s: it is taken for another id", id.name, id.id, verdict.Outcome)
			continue
		}
		b.write(attempt, Effect{Key: id.name, Label: "first", Run: 1})
		b.commit(attempt)
	}
	for _, id := range ids {
		b.expect(store, claimFor(id.id, id.name), stores.Duplicate)
	}
	if got := b.allEffects(); len(got) != len(ids) {
		b.tb.Errorf("%d ids left %d effects", len(ids), len(got))
	}
	b.sameIDs(ids)
}

// sameIDs fails unless the inbox has exactly these ids.
func (b *bench) sameIDs(ids []namedID) {
	b.tb.Helper()
	rows := b.rows()
	stored := make(map[string]bool, len(rows))
	for _, r := range rows {
		stored[string(r.id)] = true
	}
	for _, id := range ids {
		if !stored[id.id] {
			b.tb.Errorf("%s: no row has the id %q", id.name, id.id)
		}
	}
	if len(rows) != len(ids) {
		b.tb.Errorf("%d ids left %d rows", len(ids), len(rows))
	}
}

// heldByteByByte holds one id while similar ones are claimed.
func heldByteByByte(b *bench) {
	store := b.open()
	if store.Capabilities().SingleWriter {
		b.tb.Logf("not checked: transactions of different keys run one after another on this store")
		return
	}
	holder := b.win(store, claimFor("order-a", "payload"))
	for _, id := range []string{"ORDER-A", "order-a ", "order-a\x00", "order-b"} {
		b.rollback(b.win(store, claimFor(id, "payload")))
	}
	b.rollback(holder)
}

func quarantinedByteByByte(b *bench) {
	store := b.open()
	ids := byteExact()
	for _, id := range ids {
		for range 2 {
			q := stores.Quarantined{Consumer: consumer, ID: []byte(id.id), Reason: stores.ReasonConflict, Payload: []byte("payload")}
			if err := store.Quarantine(b.ctx, q); err != nil {
				b.tb.Errorf("%s: Quarantine: %v", id.name, err)
			}
		}
	}
	rows := b.quarantined()
	if len(rows) != len(ids) {
		b.tb.Fatalf("%d ids left %d rows in quarantine", len(ids), len(rows))
	}
	for i, id := range ids {
		if string(rows[i].ID) != id.id || rows[i].Seen != 2 {
			b.tb.Errorf("%s: kept as %q, seen %d times, want %q, twice", id.name, rows[i].ID, rows[i].Seen, id.id)
		}
	}
}

func inboxByteByByte(b *bench) {
	store := b.open()
	in := b.service(store)
	const limit = 255 // of the inbox; longer ones are among the hostile messages
	n := 0
	for _, id := range byteExact() {
		if len(id.id) > limit {
			continue
		}
		n++
		h := in.Middleware(b.effect(id.name))
		msg := message.NewMessage(id.id, []byte(id.name))
		for range 2 {
			if a := b.deliver(h, msg); !a.acked {
				b.tb.Errorf("%s: %q was not acked: %v", id.name, id.id, a.err)
			}
		}
		if got := b.effects(id.name); len(got) != 1 {
			b.tb.Errorf("%s: %q left effects %v, want one", id.name, id.id, got)
		}
		if !b.completed(messageKey(b.tb, msg)) {
			b.tb.Errorf("%s: %q is not completed", id.name, id.id)
		}
	}
	if rows := b.rows(); len(rows) != n {
		b.tb.Errorf("%d ids left %d rows", n, len(rows))
	}
	if kept := b.quarantined(); len(kept) > 0 {
		b.tb.Errorf("%d messages are in quarantine", len(kept))
	}
}

// effect is an honest handler with one effect.
func (b *bench) effect(key string) message.HandlerFunc {
	return b.handler(func(ctx context.Context, _ *message.Message) error {
		return b.h.Write(ctx, Effect{Key: key, Label: "first", Run: 1})
	})
}

func invalidKeys(b *bench) {
	store := b.open()
	before := b.snapshot()
	for _, id := range [][]byte{nil, {}, bytes.Repeat([]byte("a"), stores.MaxIDBytes+1), bytes.Repeat([]byte("a"), 10_000)} {
		claim := claimFor(string(id), "payload")
		attempt, _, err := store.Begin(b.ctx, claim)
		wantErr(b.tb, fmt.Sprintf("Begin with an id of %d bytes", len(id)), err, stores.ErrInvalidKey)
		b.noAttempt(attempt)
		_, err = store.Look(b.ctx, claim.Key, claim.Fingerprint)
		wantErr(b.tb, fmt.Sprintf("Look with an id of %d bytes", len(id)), err, stores.ErrInvalidKey)
		_, err = store.Record(b.ctx, failureOf(claim))
		wantErr(b.tb, fmt.Sprintf("Record with an id of %d bytes", len(id)), err, stores.ErrInvalidKey)
	}
	claim := claimFor("id", "payload")
	claim.Key.Consumer.Service = ""
	attempt, _, err := store.Begin(b.ctx, claim)
	wantErr(b.tb, "Begin without a service", err, stores.ErrInvalidKey, stores.ErrNotRegistered)
	b.noAttempt(attempt)
	b.unchanged(before, "an invalid key")
}
