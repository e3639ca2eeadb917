package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millpond-go/millpond/stores"
)

// parkedWithout: a message whose content is not kept cannot be parked, or it would be
// lost.
func parkedWithout(b *bench) {
	store := b.open()
	before := b.snapshot()
	states := []stores.ContentState{stores.ContentNone, stores.ContentTooLarge, stores.ContentOff, stores.ContentOneWay, stores.ContentRefused}
	for _, state := range states {
		f := failureOf(claimFor("without", "payload"))
		f.Content = &stores.Content{State: state}
		if _, err := store.Record(b.ctx, f); err == nil {
			b.tb.Errorf("a message with content %s was parked", state)
		}
		if f.Content = nil; state == stores.ContentNone {
			if _, err := store.Record(b.ctx, f); err == nil {
				b.tb.Errorf("a message without content was parked")
			}
		}
	}
	b.unchanged(before, "parking without content")

	for _, state := range states {
		id := "redelivered, content " + state.String()
		claim := claimFor(id, id)
		f := changed(failureOf(claim), redelivered)
		f.Content = &stores.Content{State: state}
		f.Version = b.record(store, f)
		before := b.snapshot()
		f.Placement, f.Content = stores.PlacementParked, nil
		if _, err := store.Record(b.ctx, f); err == nil {
			b.tb.Errorf("a message of whose row the content is %s was parked", state)
		}
		b.unchanged(before, "parking without content")
		f.Status, f.Placement = stores.StatusFailed, stores.PlacementRedelivered
		b.record(store, f) // for good without content
		if got := b.failure(id); got.state.Content != state {
			b.tb.Errorf("a message with content %s is kept with content %s", state, got.state.Content)
		}
	}
	f := changed(failureOf(claimFor("parked at last", "payload")), redelivered)
	f.Version = b.record(store, f)
	kept := failureOf(claimFor("parked at last", "payload"))
	f.Placement, f.Content = stores.PlacementParked, kept.Content
	b.record(store, f)
	due := b.wantDue(store, "parked at last")
	for _, r := range due {
		b.sameContent("a message that was parked at last", r.Content, *kept.Content)
	}
	b.paired()
}

func contents() []stores.Content {
	return []stores.Content{
		{},
		{UUID: "0190163d-8694-739b-aea5-966c26f8ad91", Metadata: map[string]string{"key": "value", "empty": ""}, Payload: []byte("payload"), Codec: "aes-256"},
		{UUID: "uuid \x00\xff", Payload: []byte("\x00\xff\xfe'\\\x80"), Metadata: map[string]string{
			"NUL": "a\x00b", "invalid": "\xff\xfe", "bytes \xff": "of a name", "\x00": "\x00", "escape": `\u0000 \x00 "'`, "": "\xff", "\x1b[31m": "\x1b]0;\a",
		}},
		{Payload: noise(2 << 20)},
		{Payload: bytes.Repeat([]byte{0}, 1<<20), Metadata: fields(1000, "value")},
		{Payload: []byte{}, Metadata: map[string]string{}},
		{Facts: stores.Facts{Key: []byte("the key of a tombstone"), Time: taken, RanAs: []byte("u:\x00\xff")}},
		{Payload: []byte{}, Facts: stores.Facts{Key: []byte{}, NativeID: "0-1", Time: time.UnixMilli(0)}},
		{Facts: stores.Facts{Key: []byte("\x00\xff\xfe'\\\x80"), NativeID: "\x00\xff'\\", Time: time.UnixMilli(math.MaxInt64)}},
		{Codec: "seal", Payload: []byte("sealed"), Facts: stores.Facts{Key: noise(1 << 20), NativeID: "<&>\u2028\x00", Time: time.UnixMilli(math.MinInt64), KeyWasNil: true}},
		{Codec: "seal", Payload: []byte("sealed"), Facts: stores.Facts{PayloadWasNil: true}},
	}
}

func recordContent(b *bench) {
	here, elsewhere := b.open(), b.open()
	want := make(map[string]stores.Content)
	for i, content := range contents() {
		content.State = stores.ContentKept
		f := failureOf(claimFor(fmt.Sprint("content ", i), "payload"))
		given := content
		given.Payload, given.Metadata = slices.Clone(content.Payload), maps.Clone(content.Metadata)
		given.Facts.Key = slices.Clone(content.Facts.Key)
		f.Content = &given
		b.record(here, f)
		clear(given.Payload) // they are the caller's
		clear(given.Facts.Key)
		clear(given.Metadata)
		want[string(f.Key.ID)] = content
		b.sameContent(string(f.Key.ID), b.failure(string(f.Key.ID)).content, content)
	}
	due := b.due(elsewhere, len(want)+1)
	for _, r := range due {
		id := string(r.Key.ID)
		b.sameContent(id+", due", r.Content, want[id])
		if r.Err != nil {
			b.tb.Errorf("%s: %v", id, r.Err)
		}
		m, err := elsewhere.Find(b.ctx, r.Key)
		if err != nil {
			b.tb.Fatalf("Find(%s): %v", r.Key, err)
		}
		b.sameContent(id+", shown", stores.Content{State: m.Content, Codec: m.Codec, UUID: m.UUID, Metadata: m.Metadata, Payload: m.Payload, Facts: m.Facts}, want[id])
		if m.PayloadBytes != len(m.Payload) {
			b.tb.Errorf("%s: shown with %d bytes of payload, it has %d", id, m.PayloadBytes, len(m.Payload))
		}
		b.commit(b.take(elsewhere, claimOf(r), r.State.Version))
	}
	if len(due) != len(want) {
		b.tb.Errorf("%d messages are due, want %d", len(due), len(want))
	}
	b.paired()
}

// recordPresumed: attempts that are counted before they begin.
func recordPresumed(b *bench) {
	store := b.open()
	f := changed(failureOf(claimFor("presumed", "payload")), func(f *stores.Failure) { f.Class, f.Error, f.Cause = stores.ClassCrash, "", "" })
	record := func(start bool, what string, history ...stores.Class) {
		b.tb.Helper()
		f.Start = start
		f.Version = b.record(store, f)
		got := b.failure("presumed")
		if got.state.Presumed != start || got.state.Attempts != f.Attempts {
			b.tb.Errorf("%s: presumed %t after %d attempts, want %t after %d", what, got.state.Presumed, got.state.Attempts, start, f.Attempts)
		}
		classes := make([]stores.Class, len(got.history))
		for i, attempt := range got.history {
			classes[i] = attempt.Class
		}
		if !slices.Equal(classes, history) {
			b.tb.Errorf("%s: the history is %q, want %q", what, classes, history)
		}
		if v := b.look(store, claimFor("presumed", "payload"), stores.Parked); v.Failure.Presumed != start {
			b.tb.Errorf("%s: Look returns presumed %t", what, v.Failure.Presumed)
		}
	}
	record(true, "a first attempt was begun")
	f.Attempts = 2
	record(true, "a second one was begun, so the first has crashed", stores.ClassCrash)
	f.Class, f.Error = stores.ClassTransient, "refused"
	record(false, "the second one has failed", stores.ClassCrash, stores.ClassTransient)
	f.Attempts = 3
	record(true, "a third one was begun", stores.ClassCrash, stores.ClassTransient)
	f.Class = stores.ClassPanic
	record(false, "the third one has failed", stores.ClassCrash, stores.ClassTransient, stores.ClassPanic)
	f.Class = stores.ClassTimeout
	record(false, "another one has failed", stores.ClassCrash, stores.ClassTransient, stores.ClassPanic, stores.ClassTimeout)
	b.paired()
}

func recordHistory(b *bench) {
	store := b.open()
	const more = 7
	long := strings.Repeat("e", stores.MaxHistoryErrorBytes)
	f := failureOf(claimFor("history", "payload"))
	for i := range stores.MaxHistory + more {
		f.Class, f.Error, f.Attempts = stores.Class(fmt.Sprint("class ", i)), fmt.Sprint(i, " ", long, long), i+1
		f.Version = b.record(store, f)
	}
	got := b.failure("history")
	if len(got.history) != stores.MaxHistory {
		b.tb.Fatalf("the history has %d attempts, want %d", len(got.history), stores.MaxHistory)
	}
	for i, attempt := range got.history {
		if want := stores.Class(fmt.Sprint("class ", i+more)); attempt.Class != want {
			b.tb.Errorf("attempt %d in the history is %q, want %q", i, attempt.Class, want)
		}
		if n := len(attempt.Error); n > stores.MaxHistoryErrorBytes || !strings.HasPrefix(attempt.Error, fmt.Sprint(i+more, " eee")) {
			b.tb.Errorf("attempt %d in the history has an error of %d bytes, %.20q", i, n, attempt.Error)
		}
		if i > 0 && attempt.At.Before(got.history[i-1].At) {
			b.tb.Errorf("attempt %d was at %s, before the one before it", i, attempt.At)
		}
	}
	if want := f.Error; got.error != want {
		b.tb.Errorf("the last error is kept as %.40q of %d bytes, want %d", got.error, len(got.error), len(want))
	}
	m, err := store.Message(b.ctx, got.number)
	if err != nil || len(m.History) != stores.MaxHistory || m.History[0].Class != got.history[0].Class {
		b.tb.Errorf("Message returned a history of %d attempts, %v", len(m.History), err)
	}
}

// recordHostile: text is made valid and cut; nothing refuses a failure.
func recordHostile(b *bench) {
	store := b.open()
	for i, text := range []string{
		"", "a\x00b", "\xff\xfe", "cut \xe2\x82", "\xed\xa0\x80", "'; DROP TABLE millpond_failure; --", "$1 ? :x @y %s", `"}]`, `\u0000`,
		"\x1b[31mred\x1b]0;title\a", "\r\n\t\v", strings.Repeat("\U0001F600", 5000), strings.Repeat("\x00", 10<<20),
		strings.Repeat("\xff", 10<<20), strings.Repeat("long ", 2<<20), string(noise(10 << 20)),
	} {
		id := fmt.Sprint("hostile ", i)
		f := failureOf(claimFor(id, "payload"))
		f.Error, f.Class, f.Cause = text, stores.ClassTransient, stores.CauseOf(stores.ClassTransient, text)
		f.Topic, f.Coordinates = text[:min(len(text), 5000)], text[:min(len(text), 5000)]
		b.within(promptly, "Record", func() { f.Version = b.record(store, f) })
		b.within(promptly, "Record", func() { f.Version = b.record(store, f) })
		got := b.failure(id)
		b.readable(id, got.error, text, stores.MaxErrorBytes)
		b.readable(id+", topic", got.topic, f.Topic, len(text)*len("\uFFFD"))
		b.readable(id+", coordinates", got.coordinates, f.Coordinates, len(text)*len("\uFFFD"))
		if len(got.history) != 2 {
			b.tb.Fatalf("%s: the history has %d attempts, want 2", id, len(got.history))
		}
		for _, attempt := range got.history {
			b.readable(id+", history", attempt.Error, text, stores.MaxHistoryErrorBytes)
		}
		m, err := store.Message(b.ctx, got.number)
		if err != nil || m.Unreadable != nil || m.Error != got.error || len(m.History) != 2 {
			b.tb.Errorf("%s: Message returned the error %.40q, %d attempts, %v, %v", id, m.Error, len(m.History), m.Unreadable, err)
		}
	}
	b.paired()
}

// readable fails unless got is what a text column can hold of want.
func (b *bench) readable(what, got, want string, limit int) {
	b.tb.Helper()
	const clean = 20 // bytes that have to be the same if nothing is wrong with them
	beginning := want[:min(len(want), clean)]
	switch {
	case !utf8.ValidString(got) || strings.Contains(got, "\x00"):
		b.tb.Errorf("%s is kept as %.40q, which is not valid", what, got)
	case len(got) > limit, want != "" && got == "":
		b.tb.Errorf("%s of %d bytes is kept as %d bytes, with a limit of %d", what, len(want), len(got), limit)
	case utf8.ValidString(beginning) && !strings.Contains(beginning, "\x00") && !strings.HasPrefix(got, beginning):
		b.tb.Errorf("%s %.40q is kept as %.40q", what, want, got)
	}
}
