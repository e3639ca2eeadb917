package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/millpond-go/millpond/stores"
)

func decideChecks() []check {
	return []check{
		{name: "release runs under an id of its own", run: releaseRuns},
		{name: "release keeps content byte by byte", run: releaseContent},
		{name: "reject", run: reject},
		{name: "reopen", run: reopen},
		{name: "only once", run: decideOnce},
		{name: "two operators at once", run: decideRace},
		{name: "what cannot be decided", run: decideWrong},
		{name: "seen again after the decision", run: seenAgain},
		{name: "pages and filters", run: quarantinePages},
		{name: "text of any length", run: decideText},
	}
}

func (b *bench) decide(store stores.Inspector, verb stores.Verb, rowID int64) {
	b.tb.Helper()
	if err := store.Decide(b.ctx, stores.Decision{Verb: verb, RowID: rowID, Actor: actor, Reason: reason}); err != nil {
		b.tb.Fatalf("Decide(%s, %d): %v", verb, rowID, err)
	}
}

// quarantine keeps a message and returns its row.
func (b *bench) quarantine(store stores.Store, q stores.Quarantined) stores.QuarantineRow {
	b.tb.Helper()
	b.keep(store, q)
	all := b.quarantined()
	return all[len(all)-1]
}

func releaseRuns(b *bench) {
	here, elsewhere := b.open(), b.open()
	original := claimFor("id", "payload")
	b.complete(here, original)
	q := message1()
	row := b.quarantine(here, q)
	b.decide(elsewhere, stores.VerbRelease, row.RowID)
	b.paired()
	b.expect(here, original, stores.Duplicate)

	id := stores.ReleasedID(row.RowID)
	f := b.failure(string(id))
	if f.state.Status != stores.StatusPending || f.state.Placement != stores.PlacementParked || f.state.Attempts != 0 || f.error == "" {
		b.tb.Errorf("a released message is %+v", f)
	}
	due := b.wantDue(elsewhere, string(id))
	if len(due) != 1 {
		return
	}
	r := due[0]
	if r.Fingerprint != q.Fingerprint || r.Topic != q.Topic || r.Coordinates != q.Coordinates || r.Err != nil {
		b.tb.Errorf("a released message is due as %+v", r)
	}
	b.sameContent("a released message", r.Content, stores.Content{
		State: stores.ContentKept, UUID: q.UUID, Metadata: q.Metadata, Payload: q.Payload, Facts: q.Facts,
	})
	attempt := b.take(here, claimOf(r), r.State.Version)
	b.write(attempt, Effect{Key: "released", Label: "first", Run: 1})
	b.commit(attempt)
	if len(b.effects("released")) != 1 || len(b.failures()) != 0 || !b.completed(r.Key) {
		b.tb.Errorf("a released message left effects %v and the failures %+v", b.effects("released"), b.failures())
	}

	got, err := here.QuarantinedRow(b.ctx, row.RowID)
	if err != nil || got.Status != stores.QuarantineReleased || time.Since(got.DecidedAt).Abs() > time.Hour {
		b.tb.Errorf("the row of a released message is %+v, %v", got, err)
	}
	all, err := here.Audit(b.ctx, 0, 10)
	if err != nil || len(all) != 1 {
		b.tb.Fatalf("Audit = %+v, %v, want one entry", all, err)
	}
	e := all[0]
	if e.Verb != stores.VerbRelease || e.Actor != actor || e.Reason != reason || e.Number != row.RowID || e.Consumer != consumer ||
		!bytes.Equal(e.MessageID, q.ID) || e.Before != string(stores.QuarantineHeld) || e.After != string(stores.QuarantineReleased) {
		b.tb.Errorf("the audit of a release is %+v", e)
	}
}

func releaseContent(b *bench) {
	store := b.open()
	var want []stores.Content
	for i, content := range contents() {
		q := message1()
		q.ID, q.UUID, q.Metadata, q.Payload, q.Codec, q.Facts = fmt.Append(nil, i), content.UUID, content.Metadata, content.Payload, content.Codec, content.Facts
		if i%2 == 1 {
			q.ID, q.Reason = nil, stores.ReasonNoKey
		}
		b.keep(store, q)
		want = append(want, content)
	}
	long := message1()
	long.ID, long.Fingerprint = noise(10_000), stores.Fingerprint{}
	b.keep(store, long)
	want = append(want, stores.Content{UUID: long.UUID, Metadata: long.Metadata, Payload: long.Payload, Facts: long.Facts})
	rows, wantByID := b.quarantined(), make(map[string]stores.Content)
	if len(rows) != len(want) {
		b.tb.Fatalf("%d messages are in quarantine, want %d", len(rows), len(want))
	}
	for i, row := range rows {
		b.decide(store, stores.VerbRelease, row.RowID)
		want[i].State = stores.ContentKept
		wantByID[string(stores.ReleasedID(row.RowID))] = want[i]
	}
	b.paired()
	due := b.due(store, len(wantByID)+1)
	if len(due) != len(wantByID) {
		b.tb.Errorf("%d released messages are due, want %d", len(due), len(wantByID))
	}
	for _, r := range due {
		b.sameContent(string(r.Key.ID), r.Content, wantByID[string(r.Key.ID)])
		b.commit(b.take(store, claimOf(r), r.State.Version))
	}
}

func reject(b *bench) {
	store := b.open()
	row := b.quarantine(store, message1())
	before := b.snapshot()
	b.decide(store, stores.VerbReject, row.RowID)
	b.unchanged(before, "a rejected message")
	got, err := store.QuarantinedRow(b.ctx, row.RowID)
	if err != nil || got.Status != stores.QuarantineRejected || got.DecidedAt.IsZero() || !bytes.Equal(got.Payload, row.Payload) {
		b.tb.Errorf("the row of a rejected message is %+v, %v", got, err)
	}
	all, err := store.Audit(b.ctx, 0, 10)
	if err != nil || len(all) != 1 || all[0].Verb != stores.VerbReject || all[0].Before != "held" || all[0].After != "rejected" || all[0].Actor != actor {
		b.tb.Errorf("the audit of a rejection is %+v, %v", all, err)
	}
}

// reopen takes a rejection back, and nothing else: what was rejected by mistake is decided
// anew.
func reopen(b *bench) {
	here, elsewhere := b.open(), b.open()
	row := b.quarantine(here, message1())
	again := func() error {
		return elsewhere.Decide(b.ctx, stores.Decision{Verb: stores.VerbReopen, RowID: row.RowID, Actor: actor, Reason: reason})
	}
	wantErr(b.tb, "reopen of what is held", again(), stores.ErrChanged)
	b.decide(here, stores.VerbReject, row.RowID)
	b.decide(elsewhere, stores.VerbReopen, row.RowID)
	got, err := here.QuarantinedRow(b.ctx, row.RowID)
	if err != nil || got.Status != stores.QuarantineHeld || !got.DecidedAt.IsZero() || !bytes.Equal(got.Payload, row.Payload) {
		b.tb.Errorf("the row of a reopened message is %+v, %v", got, err)
	}
	wantErr(b.tb, "a second reopen", again(), stores.ErrChanged)
	b.decide(here, stores.VerbRelease, row.RowID)
	wantErr(b.tb, "reopen of what was released", again(), stores.ErrChanged)
	wantErr(b.tb, "reopen of no row", elsewhere.Decide(b.ctx, stores.Decision{Verb: stores.VerbReopen, RowID: row.RowID + 1000}), stores.ErrNotFound)
	if due := b.due(here, 2); len(due) != 1 {
		b.tb.Errorf("%d messages are due after a release, want 1", len(due))
	}
	all, err := here.Audit(b.ctx, 0, 10)
	var decisions []string
	for _, e := range slices.Backward(all) {
		decisions = append(decisions, fmt.Sprintf("%s: %s to %s by %s", e.Verb, e.Before, e.After, e.Actor))
	}
	want := []string{
		"reject: held to rejected by " + actor, "reopen: rejected to held by " + actor, "release: held to released by " + actor,
	}
	if err != nil || !slices.Equal(decisions, want) {
		b.tb.Errorf("the audit is %q, %v, want %q", decisions, err, want)
	}
}

// decideText: operators paste what they like, and a decision must not fail for it.
func decideText(b *bench) {
	store := b.open()
	for i, text := range []string{"\x00\xff\x1b[31m", strings.Repeat("\x00", 1<<20), strings.Repeat("long ", 1<<20)} {
		for _, verb := range []stores.Verb{stores.VerbRelease, stores.VerbReject} {
			q := message1()
			q.ID, q.Detail = fmt.Append(nil, verb, i), text
			row := b.quarantine(store, q)
			if err := store.Decide(b.ctx, stores.Decision{Verb: verb, RowID: row.RowID, Actor: text, Reason: text}); err != nil {
				b.tb.Errorf("Decide(%s) with an actor of %d bytes: %v", verb, len(text), err)
			}
		}
	}
	all, err := store.Audit(b.ctx, 0, 100)
	if err != nil || len(all) != 6 {
		b.tb.Fatalf("Audit = %d entries, %v, want 6", len(all), err)
	}
	for _, e := range all {
		for _, text := range []string{e.Actor, e.Reason} {
			if text == "" || len(text) > stores.MaxDetailBytes || !utf8.ValidString(text) {
				b.tb.Errorf("a text of the audit is kept as %d bytes, %.40q", len(text), text)
			}
		}
	}
	for _, f := range b.failures() {
		if f.error == "" || len(f.error) > stores.MaxErrorBytes {
			b.tb.Errorf("the error of a released message has %d bytes", len(f.error))
		}
	}
}

func decideOnce(b *bench) {
	here, elsewhere := b.open(), b.open()
	for i, first := range []stores.Verb{stores.VerbRelease, stores.VerbReject} {
		q := message1()
		q.ID = fmt.Append(nil, i)
		row := b.quarantine(here, q)
		b.decide(here, first, row.RowID)
		before := append(b.snapshot(), b.dump("millpond_audit")...)
		for _, verb := range []stores.Verb{stores.VerbRelease, stores.VerbReject} {
			err := elsewhere.Decide(b.ctx, stores.Decision{Verb: verb, RowID: row.RowID, Actor: actor})
			wantErr(b.tb, fmt.Sprintf("%s after %s", verb, first), err, stores.ErrChanged)
		}
		if after := append(b.snapshot(), b.dump("millpond_audit")...); !slices.Equal(before, after) {
			b.tb.Errorf("a second decision has changed something: %q", after)
		}
	}
}

func decideRace(b *bench) {
	open := []stores.Store{b.open(), b.open()}
	for n := range 5 {
		q := message1()
		q.ID = fmt.Append(nil, n)
		row := b.quarantine(open[0], q)
		var carried atomic.Int64
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				verb := []stores.Verb{stores.VerbRelease, stores.VerbReject}[i/2%2]
				err := b.retry(func() error {
					return open[i%len(open)].Decide(b.ctx, stores.Decision{Verb: verb, RowID: row.RowID, Actor: actor})
				})
				switch {
				case err == nil:
					carried.Add(1)
				case !errors.Is(err, stores.ErrChanged):
					b.tb.Errorf("Decide: %v", err)
				}
			})
		}
		group.Wait()
		if got := carried.Load(); got != 1 {
			b.tb.Errorf("%d decisions about one message were carried out", got)
		}
		if all, err := open[0].Audit(b.ctx, 0, 100); err != nil || len(all) != n+1 {
			b.tb.Errorf("the audit has %d entries, %v, want %d", len(all), err, n+1)
		}
	}
	b.paired()
}

func decideWrong(b *bench) {
	store := b.open()
	oneWay := message1()
	oneWay.Codec, oneWay.OneWay = "redact", true
	row := b.quarantine(store, oneWay)
	before := append(b.snapshot(), b.dump("millpond_quarantine")...)
	decide := func(verb stores.Verb, rowID int64) error {
		return store.Decide(b.ctx, stores.Decision{Verb: verb, RowID: rowID, Actor: actor})
	}
	wantErr(b.tb, "release of what its codec cannot restore", decide(stores.VerbRelease, row.RowID), stores.ErrNotKept)
	for _, verb := range []stores.Verb{stores.VerbRelease, stores.VerbReject} {
		wantErr(b.tb, "a decision about an unknown row", decide(verb, row.RowID+1000), stores.ErrNotFound)
		wantErr(b.tb, "a decision about no row", decide(verb, 0), stores.ErrNotFound)
	}
	for _, verb := range []stores.Verb{"", stores.VerbRetry, stores.VerbDiscard} {
		if err := decide(verb, row.RowID); err == nil {
			b.tb.Errorf("Decide with the verb %q returned nil", verb)
		}
	}
	_, err := store.QuarantinedRow(b.ctx, row.RowID+1000)
	wantErr(b.tb, "QuarantinedRow with an unknown RowID", err, stores.ErrNotFound)
	if after := append(b.snapshot(), b.dump("millpond_quarantine")...); !slices.Equal(before, after) {
		b.tb.Errorf("decisions that cannot be carried out have changed something: %q", after)
	}
	if all := b.dump("millpond_audit"); len(all) > 0 {
		b.tb.Errorf("decisions that were not carried out are in the audit: %q", all)
	}
	b.decide(store, stores.VerbReject, row.RowID)
}

// seenAgain: the broker delivers the quarantined message again after the decision. It
// is counted, and nothing runs a second time.
func seenAgain(b *bench) {
	store := b.open()
	for i, verb := range []stores.Verb{stores.VerbRelease, stores.VerbReject} {
		q := message1()
		q.ID = fmt.Append(nil, i)
		row := b.quarantine(store, q)
		b.decide(store, verb, row.RowID)
		before := b.snapshot()
		b.keep(store, q)
		b.unchanged(before, "a message that is seen again after "+string(verb))
		rows := b.quarantinedAs(stores.Key{Consumer: consumer, ID: q.ID})
		if len(rows) != 1 || rows[0].Seen != 2 || rows[0].Status == stores.QuarantineHeld {
			b.tb.Errorf("a message that is seen again after %s is %+v", verb, rows)
		}
	}
	r := b.wantDue(store, string(stores.ReleasedID(b.quarantined()[0].RowID)))[0]
	b.commit(b.take(store, claimOf(r), r.State.Version))
	q := message1()
	q.ID = []byte("0")
	b.keep(store, q)
	b.wantDue(store)
}

func quarantinePages(b *bench) {
	here := b.open()
	b.register(here, another)
	const messages = 13
	for i := range messages {
		q := message1()
		q.ID = fmt.Append(nil, i)
		if i == 3 {
			q.Consumer = another
		}
		if i == 5 {
			q.Reason = stores.ReasonTooLarge
		}
		b.keep(here, q)
	}
	rows := b.quarantined()
	b.decide(here, stores.VerbReject, rows[0].RowID)
	b.decide(here, stores.VerbRelease, rows[1].RowID)
	stranger := b.openOnly()
	for _, test := range []struct {
		name string
		q    stores.QuarantineQuery
		want int
	}{
		{"held", stores.QuarantineQuery{}, messages - 2},
		{"rejected", stores.QuarantineQuery{Status: stores.QuarantineRejected}, 1},
		{"released", stores.QuarantineQuery{Status: stores.QuarantineReleased}, 1},
		{"unknown status", stores.QuarantineQuery{Status: "unknown"}, 0},
		{"handler", stores.QuarantineQuery{Handler: another.Handler}, 1},
		{"service", stores.QuarantineQuery{Service: consumer.Service}, messages - 2},
		{"unknown service", stores.QuarantineQuery{Service: "'--"}, 0},
		{"reason", stores.QuarantineQuery{Reason: stores.ReasonTooLarge}, 1},
		{"reason and handler", stores.QuarantineQuery{Reason: stores.ReasonTooLarge, Handler: another.Handler}, 0},
	} {
		q, n := test.q, 0
		for q.Limit = 4; ; {
			page, err := stranger.Quarantined(b.ctx, q)
			if err != nil {
				b.tb.Fatalf("%s: Quarantined: %v", test.name, err)
			}
			if len(page) == 0 || len(page) > q.Limit {
				break
			}
			for _, r := range page {
				if q.Before != 0 && r.RowID >= q.Before {
					b.tb.Fatalf("%s: row %d comes after %d", test.name, r.RowID, q.Before)
				}
				if q.Before = r.RowID; r.Payload != nil || r.Metadata != nil || r.PayloadBytes != len("payload") {
					b.tb.Errorf("%s: a list has %+v", test.name, r)
				}
				n++
			}
		}
		if n != test.want {
			b.tb.Errorf("%s: %d rows, want %d", test.name, n, test.want)
		}
	}
	got, err := stranger.QuarantinedRow(b.ctx, rows[4].RowID)
	if err != nil || got.Unreadable != nil || got.Status != stores.QuarantineHeld || !got.DecidedAt.IsZero() || got.LastAt.Before(got.FirstAt) {
		b.tb.Errorf("QuarantinedRow = %+v, %v", got, err)
	}
	want := message1()
	want.ID = []byte("4")
	b.sameMessage(got, want, 1)
}
