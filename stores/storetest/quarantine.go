package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"

	"github.com/millpond-go/millpond/stores"
)

func quarantineChecks() []check {
	return []check{
		{name: "kept as it came", run: keptWhole},
		{name: "merged only when identical", run: merged},
		{name: "seen by many at once", run: seenConcurrently},
		{name: "hostile text", run: hostileText},
		{name: "large payload", run: largePayload},
		{name: "is apart from the inbox", run: quarantineApart},
	}
}

func (b *bench) keep(store stores.Quarantine, q stores.Quarantined) {
	b.tb.Helper()
	if err := store.Quarantine(b.ctx, q); err != nil {
		b.tb.Fatalf("Quarantine: %v", err)
	}
}

func message1() stores.Quarantined {
	return stores.Quarantined{
		Consumer:    consumer,
		ID:          []byte("id"),
		Reason:      stores.ReasonConflict,
		Detail:      "what happened",
		Fingerprint: stores.NewFingerprint(stores.FingerprintKey{}, []byte("payload")),
		Existing:    stores.NewFingerprint(stores.NewFingerprintKey(7, []byte("secret")), []byte("another payload")),
		Topic:       "orders",
		Coordinates: "orders/3/1042",
		UUID:        "0190163d-8694-739b-aea5-966c26f8ad91",
		Metadata:    map[string]string{"key": "value", "empty": "", "": "no name", "accents": "h\u00e9"},
		Payload:     []byte("payload"),
		Facts:       stores.Facts{Key: []byte("customer 7"), NativeID: "1042-0", Time: taken},
	}
}

// sameMessage fails unless the row is the message.
func (b *bench) sameMessage(r stores.QuarantineRow, q stores.Quarantined, seen int) {
	b.tb.Helper()
	differs := func(field string, got, want any) {
		b.tb.Helper()
		if g, w := fmt.Sprintf("%q", got), fmt.Sprintf("%q", want); g != w {
			const shown = 200
			b.tb.Errorf("%s is kept as %.*s, want %.*s", field, shown, g, shown, w)
		}
	}
	differs("Consumer", r.Consumer, q.Consumer)
	differs("ID", r.ID, q.ID)
	differs("Reason", r.Reason, q.Reason)
	differs("Detail", r.Detail, q.Detail)
	differs("Fingerprint", r.Fingerprint.Bytes(), q.Fingerprint.Bytes())
	differs("Existing", r.Existing.Bytes(), q.Existing.Bytes())
	differs("Topic", r.Topic, q.Topic)
	differs("Coordinates", r.Coordinates, q.Coordinates)
	differs("UUID", r.UUID, q.UUID)
	differs("Codec", r.Codec, q.Codec)
	differs("OneWay", r.OneWay, q.OneWay)
	if !maps.Equal(r.Metadata, q.Metadata) {
		differs("Metadata", r.Metadata, q.Metadata)
	}
	b.sameFacts("quarantine", r.Facts, q.Facts)
	if !sameBytes(r.Payload, q.Payload) {
		b.tb.Errorf("Payload of %d bytes is kept as another one of %d bytes", len(q.Payload), len(r.Payload))
	}
	if r.Seen != seen {
		b.tb.Errorf("Seen = %d, want %d", r.Seen, seen)
	}
}

func keptWhole(b *bench) {
	store := b.open()
	full := message1()
	bare := stores.Quarantined{Consumer: consumer, Reason: stores.ReasonNoKey}
	long := message1()
	long.ID = bytes.Repeat([]byte("long "), 2000)
	long.Reason = stores.ReasonKeyTooLong
	binary := message1()
	binary.ID = []byte("binary")
	binary.UUID = "uuid \x00\xff"
	binary.Payload = []byte("\x00\xff\xfe'\\\x80")
	binary.Metadata = map[string]string{
		"NUL": "a\x00b", "invalid": "\xff\xfe", "bytes \xff": "of a name", "\x00": "\x00", "escape": `\u0000 \x00 "'`, "emoji": "\U0001F600",
		"surrogate": "\xed\xa0\x80", "replacement": "\uFFFD", "": "\xff",
	}
	coded := message1()
	coded.ID, coded.Codec, coded.OneWay = []byte("coded"), "redact", true
	messages := []stores.Quarantined{full, bare, long, binary, coded}
	for i, content := range contents() {
		q := message1()
		q.ID, q.Payload, q.Facts = fmt.Append(nil, "content ", i), content.Payload, content.Facts
		messages = append(messages, q)
	}
	for _, q := range messages {
		b.keep(store, q)
	}
	rows := b.quarantined()
	if len(rows) != len(messages) {
		b.tb.Fatalf("%d messages left %d rows", len(messages), len(rows))
	}
	for i, q := range messages {
		b.sameMessage(rows[i], q, 1)
	}
}

func merged(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.register(here, another)
	b.register(elsewhere, another)
	base := message1()
	withoutID := message1()
	withoutID.ID, withoutID.Reason = nil, stores.ReasonNoKey
	change := func(q stores.Quarantined, f func(*stores.Quarantined)) stores.Quarantined {
		f(&q)
		return q
	}
	distinct := []stores.Quarantined{
		base,
		change(base, func(q *stores.Quarantined) { q.ID = []byte("ID") }),
		change(base, func(q *stores.Quarantined) { q.Consumer = another }),
		change(base, func(q *stores.Quarantined) { q.Reason = stores.ReasonTooLarge }),
		change(base, func(q *stores.Quarantined) {
			q.Fingerprint = stores.NewFingerprint(stores.FingerprintKey{}, []byte("x"))
		}),
		change(base, func(q *stores.Quarantined) { q.Fingerprint = stores.Fingerprint{} }),
		withoutID,
		change(withoutID, func(q *stores.Quarantined) { q.Topic = "Orders" }),
		change(withoutID, func(q *stores.Quarantined) { q.Coordinates = "orders/3/1043" }),
		change(withoutID, func(q *stores.Quarantined) { q.UUID = "another" }),
		change(withoutID, func(q *stores.Quarantined) { q.Metadata = map[string]string{"key": "Value"} }),
		change(withoutID, func(q *stores.Quarantined) { q.Metadata = nil }),
		change(withoutID, func(q *stores.Quarantined) { q.Payload = []byte("Payload") }),
		change(withoutID, func(q *stores.Quarantined) { q.Payload = nil }),
		change(withoutID, func(q *stores.Quarantined) { q.Facts.Key = []byte("customer 8") }),
		change(withoutID, func(q *stores.Quarantined) { q.Facts.NativeID = "1043-0" }),
		change(withoutID, func(q *stores.Quarantined) { q.Facts.Time = taken.Add(1) }),
	}
	for _, q := range distinct {
		b.keep(here, q)
	}
	first := b.quarantined()
	if len(first) != len(distinct) {
		b.tb.Fatalf("%d different messages left %d rows", len(distinct), len(first))
	}
	again := change(base, func(q *stores.Quarantined) { // what identifies it is the same
		q.Detail, q.Topic, q.Payload, q.Existing = "another detail", "another topic", []byte("another"), stores.Fingerprint{}
	})
	b.keep(elsewhere, again)
	for _, q := range distinct[1:] {
		b.keep(elsewhere, q)
	}
	rows := b.quarantined()
	if len(rows) != len(distinct) {
		b.tb.Fatalf("%d messages that came twice left %d rows", len(distinct), len(rows))
	}
	for i, q := range distinct {
		b.sameMessage(rows[i], q, 2) // nothing but the count has changed
	}
}

func seenConcurrently(b *bench) {
	here, elsewhere := b.open(), b.open()
	q := message1()
	var group sync.WaitGroup
	for i := range racers {
		store := here
		if i%2 == 1 {
			store = elsewhere
		}
		group.Go(func() {
			if err := b.retry(func() error { return store.Quarantine(b.ctx, q) }); err != nil {
				b.tb.Errorf("Quarantine: %v", err)
			}
		})
	}
	group.Wait()
	rows := b.quarantined()
	if len(rows) != 1 {
		b.tb.Fatalf("one message left %d rows", len(rows))
	}
	b.sameMessage(rows[0], q, racers)
}

// hostileText: what people read is made valid; nothing else is touched.
func hostileText(b *bench) {
	store := b.open()
	for i, text := range []string{
		"a\x00b", "\xff\xfe", "cut \xe2\x82", "\xed\xa0\x80", "'; DROP TABLE millpond_quarantine; --", "$1 ? :x @y", "\x1b[31mred",
		strings.Repeat("long ", 20_000), strings.Repeat("\x00", 5000), strings.Repeat("\U0001F600", 2000), "\r\n\t\v",
	} {
		q := message1()
		q.ID = fmt.Append(nil, i)
		q.Detail, q.Topic, q.Coordinates = text, text, text
		b.keep(store, q)
		b.keep(store, q)
		rows := b.quarantinedAs(stores.Key{Consumer: consumer, ID: q.ID})
		if len(rows) != 1 {
			b.tb.Errorf("the text %.40q left %d rows", text, len(rows))
			continue
		}
		r := rows[0]
		for field, got := range map[string]string{"Detail": r.Detail, "Topic": r.Topic, "Coordinates": r.Coordinates} {
			if got == "" || strings.ToValidUTF8(got, "") != got || len(got) > 4*stores.MaxDetailBytes {
				b.tb.Errorf("%s %.40q is kept as %.40q (%d bytes)", field, text, got, len(got))
			}
		}
		q.Detail, q.Topic, q.Coordinates = r.Detail, r.Topic, r.Coordinates
		b.sameMessage(r, q, 2)
	}
}

func largePayload(b *bench) {
	store := b.open()
	for i, size := range []int{1 << 20, 10 << 20} {
		if b.h.Largest > 0 {
			size = min(size, b.h.Largest)
		}
		q := message1()
		q.ID = fmt.Append(nil, "large ", i)
		q.Payload = noise(size)
		b.keep(store, q)
		rows := b.quarantinedAs(stores.Key{Consumer: consumer, ID: q.ID})
		if len(rows) != 1 {
			b.tb.Fatalf("a payload of %d bytes left %d rows", size, len(rows))
		}
		b.sameMessage(rows[0], q, 1)
	}
}

// noise returns bytes that cannot be compressed.
func noise(size int) []byte {
	payload := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(payload)
	return payload
}

func quarantineApart(b *bench) {
	store := b.open()
	claim := claimFor("id", "payload")
	q := message1()
	b.keep(store, q)
	b.complete(store, claim) // its key is free
	before := b.snapshot()
	b.keep(store, q)
	b.unchanged(before, "quarantine of a message under a completed key")
	b.expect(store, claim, stores.Duplicate)
}
