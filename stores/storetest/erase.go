package storetest

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

func eraseChecks(h *Harness) []check {
	checks := []check{
		{name: "nothing of the content is left", run: eraseTraces},
		{name: "no delivery and no retry brings it back", run: eraseForGood},
		{name: "pending messages only by name", run: erasePending},
		{name: "what somebody has is left alone", run: eraseReserved},
		{name: "the order goes on", run: eraseOrder},
		{name: "quarantine", run: eraseQuarantined},
		{name: "through the inbox", run: eraseThroughInbox},
	}
	if h.Transact != nil {
		checks = append(checks, check{name: "outbox, history and dead letters", run: func(b *bench) { b.eraseOutputs() }})
	}
	return checks
}

// personal is in whatever the checks plant of a message, but its key.
const personal = "personal data"

// traces returns where the tables have what is personal.
func (b *bench) traces() (found []string) {
	b.tb.Helper()
	encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(personal)), "=")
	encoded = encoded[:len(encoded)-1]
	for _, table := range []string{"inbox", "failure", "quarantine", "audit", "once", "outbox", "outbox_history", "outbox_failed", "consumer"} {
		b.query("SELECT * FROM millpond_"+table, func(rows *sql.Rows) error {
			columns, err := rows.Columns()
			if err != nil {
				return err
			}
			values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			for i, column := range columns {
				if v := string(values[i]); strings.Contains(v, personal) || strings.Contains(v, encoded) {
					found = append(found, table+"."+column)
				}
			}
			return nil
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// fillPersonal puts what is personal wherever a failure has room.
func fillPersonal(f *stores.Failure) {
	f.Error, f.OrderKey = personal+" refused", []byte(personal)
	f.Cause = stores.CauseOf(f.Class, f.Error)
	f.Content = &stores.Content{
		State: stores.ContentKept, Codec: "plain", UUID: personal, Metadata: map[string]string{"name": personal}, Payload: []byte(personal),
		Facts: stores.Facts{Key: []byte(personal), NativeID: personal},
	}
}

// erases takes away what is kept, in one batch, and fails unless it changes so many.
func (b *bench) erases(store stores.Inspector, want int, f stores.Filter) stores.Changed {
	b.tb.Helper()
	return b.change(store, stores.VerbErase, f, want)
}

func eraseTraces(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.fails(here, "failed", fillPersonal, settledFor)
	b.fails(here, "discarded", fillPersonal)
	b.change(here, stores.VerbDiscard, stores.Filter{}, 1+1)
	b.fails(here, "lately failed", fillPersonal, settledFor)
	for _, id := range []string{"failed", "lately failed"} {
		b.step(id)
	}
	if found := b.traces(); len(found) < 7 {
		b.tb.Fatalf("what is personal was planted only in %q", found)
	}
	before := b.failure("failed")
	b.erases(elsewhere, 3, stores.Filter{})
	if found := b.traces(); len(found) > 0 {
		b.tb.Errorf("what is personal is left in %q", found)
	}
	b.paired()
	for _, id := range []string{"failed", "discarded", "lately failed"} {
		m, err := elsewhere.Find(b.ctx, claimFor(id, id).Key)
		if err != nil || m.Status != stores.StatusDiscarded || m.Content != stores.ContentErased || m.Fingerprint != claimFor(id, id).Fingerprint ||
			m.Topic != topic || m.LastAt.IsZero() || m.Error != "" || m.Payload != nil || m.Metadata != nil || m.UUID != "" || m.OrderKey != nil ||
			len(m.History) != 0 || m.Unreadable != nil {
			b.tb.Errorf("an erased message is %+v, %v", m, err)
		}
	}
	if after := b.failure("failed"); after.version == before.version {
		b.tb.Error("the version of an erased message is as it was")
	}
	b.erases(here, 0, stores.Filter{}) // once is enough
	all, err := here.Audit(b.ctx, 0, 10)
	if err != nil || len(all) != 5 {
		b.tb.Fatalf("Audit = %d entries, %v, want 5", len(all), err)
	}
	for i, want := range []string{"failed", "discarded", "discarded"} {
		if e := all[i]; e.Verb != stores.VerbErase || e.Before != want || e.After != "discarded" || e.Actor != actor || len(e.MessageID) == 0 {
			b.tb.Errorf("the audit of an erasure is %+v, want it %s before", e, want)
		}
	}
}

// step writes a step of a failed message's handler that is done.
func (b *bench) step(id string) {
	b.tb.Helper()
	c := claimFor(id, id)
	b.exec(fmt.Sprintf(`INSERT INTO millpond_once (consumer, message_id, name, at, result)
SELECT f.consumer, f.message_id, 'step', f.last_at, f.payload FROM millpond_failure f WHERE f.number = %d`, b.failure(string(c.Key.ID)).number))
}

func eraseForGood(b *bench) {
	store := b.open()
	b.fails(store, "kept", settledFor)
	b.fails(store, "at the broker", redelivered, settledFor)
	b.erases(store, 2, stores.Filter{})
	before := b.snapshot()
	for _, id := range []string{"kept", "at the broker"} {
		c := claimFor(id, id)
		v := b.look(store, c, stores.Final)
		if v.Failure.Content != stores.ContentErased {
			b.tb.Errorf("an erased message looks like %+v", v.Failure)
		}
		b.expect(store, c, stores.Final)
		wantErr(b.tb, "KeepContent of what was erased", store.KeepContent(b.ctx, c.Key, v.Failure.Version, *failureOf(c).Content), stores.ErrChanged)
	}
	all := []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded}
	b.change(store, stores.VerbRetry, stores.Filter{Status: all}, 0)
	b.change(store, stores.VerbDiscard, stores.Filter{Status: all}, 0)
	b.wantDue(store)
	b.unchanged(before, "a delivery, a retry and a discard of what was erased")
}

func erasePending(b *bench) {
	store := b.open()
	b.fails(store, "parked")
	b.fails(store, "at the broker", redelivered, func(f *stores.Failure) { f.DueIn = later })
	before := b.snapshot()
	b.erases(store, 0, stores.Filter{})
	b.erases(store, 0, stores.Filter{ID: []byte("parked")})
	b.unchanged(before, "an erasure that names no pending messages")
	b.erases(store, 2, stores.Filter{Status: []stores.Status{stores.StatusPending}})
	b.wantDue(store)
	b.paired()
	for _, id := range []string{"parked", "at the broker"} {
		b.expect(store, claimFor(id, id), stores.Final)
		if f := b.failure(id); f.state.Status != stores.StatusDiscarded || f.due {
			b.tb.Errorf("an erased pending message is %+v", f)
		}
	}
}

// eraseReserved: neither a worker's message nor one whose handler runs is touched.
func eraseReserved(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.fails(here, "reserved")
	b.wantDue(here, "reserved")
	version := b.fails(here, "runs")
	attempt := b.take(here, claimFor("runs", "runs"), version)
	b.tb.Cleanup(func() { _ = attempt.Rollback(context.WithoutCancel(b.ctx)) })
	erase := stores.Change{Verb: stores.VerbErase, Filter: stores.Filter{Status: []stores.Status{stores.StatusPending}}, Limit: 10}
	open := []stores.Store{here, elsewhere}
	shared := b.claimsShared(here)
	if shared {
		open = open[:1]
	}
	for _, store := range open {
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		got, err := store.Change(ctx, erase)
		cancel()
		if here.Capabilities().SingleWriter && errors.Is(err, stores.ErrUnavailable) {
			continue
		}
		if err != nil || got.Changed != 0 || got.Reserved != 1 || got.Busy != 1 {
			b.tb.Errorf("Change = %+v, %v, want one reserved and one busy", got, err)
		}
	}
	b.write(attempt, Effect{Key: "runs", Label: "first", Run: 1})
	if shared {
		b.erasesUnderway(elsewhere, attempt, erase)
		return
	}
	b.commit(attempt)
	b.expect(elsewhere, claimFor("runs", "runs"), stores.Duplicate)
	b.paired()
}

// erasesUnderway: where other processes cannot know what runs, they erase it, and it does not commit.
func (b *bench) erasesUnderway(elsewhere stores.Store, attempt stores.Attempt, erase stores.Change) {
	b.tb.Helper()
	got, err := elsewhere.Change(b.ctx, erase)
	if err != nil || got.Changed != 1 || got.Reserved != 1 || got.Busy != 0 {
		b.tb.Errorf("Change elsewhere = %+v, %v, want one reserved and one changed", got, err)
	}
	wantErr(b.tb, "Commit of what was erased meanwhile", attempt.Commit(b.ctx), stores.ErrNotCommitted)
	if i, ok := attempt.(stores.Interruptible); !ok || i.Interrupted() == nil {
		b.tb.Errorf("the attempt is not interrupted, so that it would count")
	}
	if found := b.effects("runs"); len(found) > 0 {
		b.tb.Errorf("effects %v of what was erased are committed", found)
	}
	b.expect(elsewhere, claimFor("runs", "runs"), stores.Final)
	b.paired()
}

// eraseOrder: what waited behind an erased message is due.
func eraseOrder(b *bench) {
	store := b.open()
	if b.unordered(store) {
		return
	}
	b.parks(store, "first", "order", func(f *stores.Failure) { f.DueIn = later })
	b.parks(store, "second", "order", func(f *stores.Failure) { f.DueIn = later })
	b.wantDue(store)
	b.erases(store, 1, stores.Filter{ID: []byte("first"), Status: []stores.Status{stores.StatusPending}})
	b.wantDue(store, "second")
	b.selects(store, "by order key", stores.Filter{OrderKey: []byte("order")}, []string{"second"})
}

func eraseQuarantined(b *bench) {
	store := b.open()
	q := message1()
	q.Detail, q.UUID, q.Payload, q.Metadata = personal, personal, []byte(personal), map[string]string{"name": personal}
	q.Facts = stores.Facts{Key: []byte(personal), NativeID: personal}
	var rows []stores.QuarantineRow
	for i := range 3 {
		q.ID = fmt.Append(nil, i)
		rows = append(rows, b.quarantine(store, q))
	}
	b.decide(store, stores.VerbReject, rows[0].RowID)
	b.decide(store, stores.VerbRelease, rows[1].RowID)
	wantErr(b.tb, "erase of what was released since it was held", store.Decide(b.ctx,
		stores.Decision{Verb: stores.VerbErase, RowID: rows[1].RowID, From: stores.QuarantineHeld}), stores.ErrChanged)
	for _, r := range rows {
		b.decide(store, stores.VerbErase, r.RowID)
		for _, verb := range []stores.Verb{stores.VerbErase, stores.VerbRelease, stores.VerbReopen, stores.VerbReject} {
			wantErr(b.tb, string(verb)+" of what was erased", store.Decide(b.ctx, stores.Decision{Verb: verb, RowID: r.RowID}), stores.ErrChanged)
		}
	}
	if found := b.traces(); !slices.Equal(found, []string{"failure.error", "failure.facts", "failure.metadata", "failure.payload", "failure.uuid"}) {
		b.tb.Errorf("what is personal is left in %q, want it in the copy that was released alone", found)
	}
	b.erases(store, 1, stores.Filter{ID: stores.ReleasedID(rows[1].RowID), Status: []stores.Status{stores.StatusPending}})
	b.keep(store, q) // it comes again
	if found := b.traces(); len(found) > 0 {
		b.tb.Errorf("what is personal is left in %q", found)
	}
	got, err := store.QuarantinedRow(b.ctx, rows[2].RowID)
	if err != nil || got.Status != stores.QuarantineErased || got.Seen != 2 || got.Fingerprint != q.Fingerprint || string(got.ID) != "2" ||
		got.Payload != nil || got.Unreadable != nil || got.Reason != q.Reason {
		b.tb.Errorf("an erased row that was stored again is %+v, %v", got, err)
	}
	for name, test := range map[string]stores.QuarantineQuery{
		"id":    {ID: []byte("1")},
		"topic": {Topic: q.Topic, ID: []byte("1")},
		"since": {Since: time.Now().Add(-time.Hour), ID: []byte("1")},
		"until": {Until: time.Now().Add(time.Hour), ID: []byte("1")},
	} {
		test.Status, test.Limit = stores.QuarantineErased, 10
		if found, err := store.Quarantined(b.ctx, test); err != nil || len(found) != 1 || found[0].RowID != rows[1].RowID {
			b.tb.Errorf("by %s: %+v, %v", name, found, err)
		}
	}
	for name, test := range map[string]stores.QuarantineQuery{
		"id": {ID: []byte("no")}, "topic": {Topic: "no"}, "since": {Since: time.Now().Add(time.Hour)}, "until": {Until: time.Now().Add(-time.Hour)},
	} {
		test.Status, test.Limit = stores.QuarantineErased, 10
		if found, err := store.Quarantined(b.ctx, test); err != nil || len(found) != 0 {
			b.tb.Errorf("by another %s: %+v, %v", name, found, err)
		}
	}
	audit, err := store.Audit(b.ctx, 0, 10)
	if err != nil || len(audit) != 6 || audit[1].Verb != stores.VerbErase || audit[1].Before != "held" || audit[1].After != "erased" || audit[2].Before != "released" {
		b.tb.Errorf("the audit is %+v, %v", audit, err)
	}
}

func (b *bench) eraseOutputs() {
	o := b.openOperated()
	for state, want := range map[stores.OutputState]int{stores.OutputPublished: 2, stores.OutputFailed: 2, stores.OutputPending: 2} {
		if n := o.change(stores.VerbEraseOutput, stores.OutputFilter{State: state}); n != want {
			b.tb.Errorf("erase of what is %s has changed %d, want %d", state, n, want)
		}
		o.selects("erased", stores.OutputFilter{State: state})
	}
	entries, err := o.store.(stores.Inspector).Audit(b.ctx, 0, 100)
	if err != nil || len(entries) != 6 {
		b.tb.Fatalf("the audit has %d entries, %v, want 6", len(entries), err)
	}
	for _, e := range entries {
		if e.Verb != stores.VerbEraseOutput || e.After != "erased" || len(e.MessageID) == 0 || e.Number != o.numbers[string(e.MessageID)] {
			b.tb.Errorf("the audit of an erasure is %+v", e)
		}
	}
}

// eraseThroughInbox: a redelivery of what was erased is acked, does not run, and leaves nothing
// behind, whether the broker or the store had its content.
func eraseThroughInbox(b *bench) {
	store := b.open()
	in := b.service(store)
	msg := message.NewMessage("erased", []byte(personal))
	msg.Metadata.Set("name", personal)
	for _, facts := range []brokers.Delivery{{}, {Suspect: true}} {
		b.clear()
		deliver := func(h message.HandlerFunc) answer { return b.deliverWith(in.Middleware(h), msg, facts) }
		deliver(b.handler(func(context.Context, *message.Message) error { return errors.New(personal) }))
		b.erases(store, 1, stores.Filter{Status: []stores.Status{stores.StatusPending}})
		for range 2 {
			if a := deliver(b.effect("erased")); !a.acked || len(b.effects("erased")) > 0 {
				b.tb.Errorf("a redelivery of what was erased: acked %t, effects %v, %v", a.acked, b.effects("erased"), a.err)
			}
		}
		if found := b.traces(); len(found) > 0 {
			b.tb.Errorf("what is personal is back in %q", found)
		}
	}
}
