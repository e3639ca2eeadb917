package storetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// changeReserved: what a worker has is left to it until the reservation runs out, and every
// view says so.
func changeReserved(b *bench) {
	store := b.open()
	b.fails(store, "reserved")
	b.wantDue(store, "reserved")
	b.fails(store, "free", settledFor)
	b.fails(store, "due")
	b.wantReserved(store, "reserved")
	before := b.failure("reserved")
	for _, verb := range []stores.Verb{stores.VerbRetry, stores.VerbDiscard} {
		filter := stores.Filter{Numbers: []int64{before.number, b.failure("free").number}}
		if got := b.change(store, verb, filter, 1); got.Reserved != 1 || got.Busy != 0 {
			b.tb.Errorf("%s: Change = %+v, want one reserved", verb, got)
		}
		if after := b.failure("reserved"); after.version != before.version {
			b.tb.Errorf("%s has changed a message that a worker has: %+v", verb, after)
		}
	}
	b.fails(store, "lapsed", func(f *stores.Failure) { f.DueIn = 0 })
	if _, err := store.Due(b.ctx, stores.DueQuery{Consumer: consumer, Limit: 10, Reserve: time.Millisecond}); err != nil {
		b.tb.Fatalf("Due: %v", err)
	}
	if !poll(b.ctx, patience, func() bool {
		got, err := store.Change(b.ctx, stores.Change{Verb: stores.VerbDiscard, Filter: stores.Filter{ID: []byte("lapsed")}, Limit: 10})
		return err != nil || got.Changed == 1
	}) {
		b.tb.Errorf("a message whose reservation ran out cannot be changed")
	}
	b.wantReserved(store, "reserved")
}

// wantReserved fails unless exactly the messages of these ids are told to be reserved.
func (b *bench) wantReserved(store stores.Inspector, ids ...string) {
	b.tb.Helper()
	var got [2][]string
	for i, filter := range []stores.Filter{{}, {Reserved: true}} {
		page, err := store.Messages(b.ctx, stores.MessageQuery{Filter: filter, Limit: 100})
		if err != nil {
			b.tb.Fatalf("Messages(%+v): %v", filter, err)
		}
		for _, m := range page {
			if whole, err := store.Message(b.ctx, m.Number); err != nil || whole.Reserved != m.Reserved {
				b.tb.Errorf("message %d is reserved %t alone, %v, and %t in a list", m.Number, whole.Reserved, err, m.Reserved)
			}
			if m.Reserved {
				got[i] = append(got[i], string(m.Key.ID))
			}
		}
		slices.Sort(got[i])
	}
	n, _, err := store.Matching(b.ctx, stores.Filter{Reserved: true}, 100)
	if !slices.Equal(got[0], ids) || !slices.Equal(got[1], ids) || n != len(ids) || err != nil {
		b.tb.Errorf("%q, %q and %d, %v, are reserved, want %q", got[0], got[1], n, err, ids)
	}
}

// breaks carries out a decision on reserved messages, too.
func (b *bench) breaks(store stores.Inspector, verb stores.Verb, id string) stores.Changed {
	b.tb.Helper()
	got, err := store.Change(b.ctx, stores.Change{
		Verb: verb, Filter: stores.Filter{ID: []byte(id)}, Break: true, Actor: actor, Reason: reason, Limit: 10,
	})
	if err != nil || !got.Done || got.Reserved != 0 {
		b.tb.Fatalf("Change(%s) that breaks reservations = %+v, %v", verb, got, err)
	}
	return got
}

// changeBreaks: what a dead worker had is free at once, and a living one that had it can
// neither run it nor renew its reservation.
func changeBreaks(b *bench) {
	worker, operator := b.open(), b.open()
	for _, id := range []string{"discarded", "retried"} {
		b.fails(worker, id, func(f *stores.Failure) { f.Attempts = 3 })
	}
	had := b.wantDue(worker, "discarded", "retried")
	for id, verb := range map[string]stores.Verb{"retried": stores.VerbRetry, "discarded": stores.VerbDiscard} {
		if got := b.breaks(operator, verb, id); got.Changed != 1 || got.Busy != 0 {
			b.tb.Errorf("%s of a message that a worker has = %+v, want one changed", verb, got)
		}
	}
	b.wantReserved(operator)
	b.paired()
	if err := errors.Join(worker.Renew(b.ctx, had, reserve), worker.Release(b.ctx, had)); err != nil {
		b.tb.Errorf("Renew and Release of what is gone: %v", err)
	}
	for _, r := range had {
		want := stores.Parked
		if string(r.Key.ID) == "discarded" {
			want = stores.Final
		}
		b.expect(worker, claimOf(r), want)
		b.refuses(worker, changed(failureOf(claimOf(r)), func(f *stores.Failure) { f.Version = r.State.Version }), false, "Record in the version before its reservation was broken")
	}
	due := b.wantDue(operator, "retried")
	if r := due[0]; !r.Suspect || r.State.Attempts != 0 {
		b.tb.Errorf("a message whose reservation was broken is suspect %t, after %d attempts: want true and 0", r.Suspect, r.State.Attempts)
	}
	b.commit(b.take(operator, claimOf(due[0]), due[0].State.Version))
	all, err := operator.Audit(b.ctx, 0, 10)
	if err != nil || len(all) != 2 || all[0].Before != "reserved" || all[1].Before != "reserved" || all[0].Actor != actor {
		b.tb.Errorf("Audit = %+v, %v, want two entries of what was reserved", all, err)
	}
	b.paired()
}

// breaksInFlight: an attempt that runs is left alone, and commits.
func breaksInFlight(b *bench) {
	worker, operator := b.open(), b.open()
	if b.claimsShared(worker) {
		operator = worker
	}
	b.fails(worker, "in flight")
	r := b.wantDue(worker, "in flight")[0]
	attempt := b.take(worker, claimOf(r), r.State.Version)
	b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) })
	b.write(attempt, Effect{Key: "in flight", Label: "first", Run: 1})
	before := b.failure("in flight")
	for _, verb := range []stores.Verb{stores.VerbRetry, stores.VerbDiscard, stores.VerbResolve} {
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		got, err := operator.Change(ctx, stores.Change{Verb: verb, Filter: stores.Filter{ID: []byte("in flight")}, Break: true, Actor: actor, Limit: 10})
		cancel()
		single := worker.Capabilities().SingleWriter && errors.Is(err, stores.ErrUnavailable)
		if !single && (err != nil || got.Changed != 0 || got.Busy != 1) {
			b.tb.Errorf("%s that breaks reservations = %+v, %v, want one busy", verb, got, err)
		}
	}
	if after := b.failure("in flight"); after.version != before.version {
		b.tb.Errorf("an operator has changed a message that is in flight")
	}
	b.commit(attempt)
	b.expect(operator, claimOf(r), stores.Duplicate)
	b.paired()
}

// dueOfAnother: a failover that lost commits may have given a message's version to another
// one. Who had the first has no say over the second.
func dueOfAnother(b *bench) {
	here, elsewhere := b.open(), b.open()
	b.fails(elsewhere, "theirs")
	theirs := b.wantDue(elsewhere, "theirs")[0]
	lost := theirs
	lost.Key.ID = []byte("lost")
	before := b.snapshot()
	due := b.look(here, claimFor("theirs", "theirs"), stores.Parked).Failure.DueIn
	if err := errors.Join(here.Renew(b.ctx, []stores.Retry{lost}, 10*reserve), here.Release(b.ctx, []stores.Retry{lost})); err != nil {
		b.tb.Errorf("Renew and Release of what was lost: %v", err)
	}
	b.unchanged(before, "Renew and Release of what was lost")
	if got := b.look(here, claimFor("theirs", "theirs"), stores.Parked).Failure.DueIn; got > due {
		b.tb.Errorf("the message of that version is due in %s, after it was due in %s", got, due)
	}
	b.wantDue(here)
	if err := elsewhere.Release(b.ctx, []stores.Retry{theirs}); err != nil {
		b.tb.Errorf("Release: %v", err)
	}
	b.wantDue(here, "theirs")
}
