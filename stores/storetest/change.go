package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millpond-go/millpond/stores"
)

func changeChecks() []check {
	return []check{
		{name: "retry", run: changeRetry},
		{name: "retry without content", run: retryWithout},
		{name: "discard", run: changeDiscard},
		{name: "resolve", run: changeResolve},
		{name: "a resolved message does not hold up others", run: resolveInOrder},
		{name: "resolve races with a holder that completes", run: resolveRace},
		{name: "content after a discard", run: contentAfterDiscard},
		{name: "in batches", run: changeInBatches},
		{name: "what each verb is for", run: changeVerbs},
		{name: "reserved messages are left alone", run: changeReserved},
		{name: "breaks reservations", run: changeBreaks},
		{name: "breaks no attempt in flight", run: breaksInFlight},
		{name: "messages in flight are busy", run: changeInFlight},
		{name: "two operators at once", run: twoOperators},
		{name: "races with redelivery", run: redriveRace},
		{name: "audit", run: audit},
	}
}

const (
	actor  = "storetest operator"
	reason = "storetest reason"
)

// change carries out a decision in one batch, and fails unless it changes so many.
func (b *bench) change(store stores.Inspector, verb stores.Verb, filter stores.Filter, want int) stores.Changed {
	b.tb.Helper()
	got, err := store.Change(b.ctx, stores.Change{Verb: verb, Filter: filter, Actor: actor, Reason: reason, Limit: 1000})
	if err != nil {
		b.tb.Fatalf("Change(%s): %v", verb, err)
	}
	if got.Changed != want || !got.Done {
		b.tb.Errorf("Change(%s, %+v) = %+v, want %d changed, done", verb, filter, got, want)
	}
	return got
}

func changeRetry(b *bench) {
	here, elsewhere := b.open(), b.open()
	f := changed(failureOf(claimFor("failed", "failed")), func(f *stores.Failure) {
		f.Attempts, f.Uncounted, f.Start = 5, 4, true
	})
	f.Version = b.record(here, f)
	f.Start = false
	settledFor(&f)
	f.Version = b.record(here, f)
	b.fails(here, "pending", func(f *stores.Failure) { f.DueIn = later })
	old := b.failure("failed")
	if v := b.change(elsewhere, stores.VerbRetry, stores.Filter{}, 2); v.Redelivered != 0 || v.Busy != 0 {
		b.tb.Errorf("Change = %+v, want none redelivered or busy", v)
	}
	b.paired()
	got := b.failure("failed")
	if got.state.Status != stores.StatusPending || got.state.Placement != stores.PlacementParked || got.state.Attempts != 0 ||
		got.state.Uncounted != 0 || got.state.Presumed || got.reserved || got.redrives != 1 || !got.due || got.version == old.version {
		b.tb.Errorf("a message that is tried again is %+v", got)
	}
	if got.error != old.error || got.cause != old.cause || len(got.history) != len(old.history) {
		b.tb.Errorf("a message that is tried again has forgotten what happened: %+v", got)
	}
	b.expect(here, claimFor("failed", "failed"), stores.Parked)
	b.refuses(here, changed(f, func(f *stores.Failure) { f.Version = old.version }), false, "Record in the version before the retry")
	for _, r := range b.wantDue(here, "failed", "pending") {
		if r.State.Attempts != 0 || r.State.Age > time.Minute {
			b.tb.Errorf("%s is tried again with the state %+v", r.Key, r.State)
		}
		b.commit(b.take(here, claimOf(r), r.State.Version))
	}
	b.change(here, stores.VerbRetry, stores.Filter{}, 0) // completed ones are left alone

	b.fails(here, "twice", settledFor)
	for _, want := range []int{1, 0} { // what is to be tried again at once is so already
		b.change(here, stores.VerbRetry, stores.Filter{ID: []byte("twice")}, want)
	}
	b.expect(here, claimFor("failed", "failed"), stores.Duplicate)
	b.paired()
}

// retryWithout: what is not kept can only come from the broker again.
func retryWithout(b *bench) {
	store := b.open()
	states := []stores.ContentState{stores.ContentNone, stores.ContentTooLarge, stores.ContentOff, stores.ContentOneWay, stores.ContentRefused}
	for _, state := range states {
		b.fails(store, state.String(), redelivered, settledFor, func(f *stores.Failure) { f.Content = &stores.Content{State: state} })
	}
	b.fails(store, "kept", settledFor, func(f *stores.Failure) { f.Placement = stores.PlacementRedelivered })
	if v := b.change(store, stores.VerbRetry, stores.Filter{}, len(states)+1); v.Redelivered != len(states) {
		b.tb.Errorf("Change = %+v, want %d redelivered", v, len(states))
	}
	b.wantDue(store, "kept")
	for _, state := range states {
		claim := claimFor(state.String(), state.String())
		v := b.look(store, claim, stores.Claimable)
		if v.Failure.Placement != stores.PlacementRedelivered || v.Failure.Attempts != 0 {
			b.tb.Errorf("a message with content %s is tried again as %+v", state, v.Failure)
		}
		b.complete(store, claim)
	}
	b.paired()
}

func changeDiscard(b *bench) {
	here, elsewhere := b.open(), b.open()
	version := b.fails(here, "pending")
	b.fails(here, "failed", settledFor)
	b.fails(here, "left alone")
	b.change(elsewhere, stores.VerbDiscard, stores.Filter{ID: []byte("pending")}, 1)
	b.change(elsewhere, stores.VerbDiscard, stores.Filter{ID: []byte("failed")}, 1)
	b.paired()
	for _, id := range []string{"pending", "failed"} {
		if got := b.failure(id); got.state.Status != stores.StatusDiscarded || got.due {
			b.tb.Errorf("a discarded message is %+v", got)
		}
		b.expect(here, claimFor(id, id), stores.Final)
	}
	old := claimFor("pending", "pending")
	old.Take = version
	b.expect(here, old, stores.Final)
	b.wantDue(here, "left alone")
	b.change(here, stores.VerbRetry, stores.Filter{ID: []byte("pending"), Status: []stores.Status{stores.StatusDiscarded}}, 1)
	b.wantDue(here, "pending")
}

// changeInBatches: batch by batch, up to a number, and nothing twice.
func changeInBatches(b *bench) {
	store := b.open()
	const messages, limit = 23, 10
	for i := range messages {
		b.fails(store, fmt.Sprint("message ", i), settledFor)
	}
	b.fails(store, "other", settledFor, func(f *stores.Failure) { f.Class = stores.ClassPanic })
	filter := stores.Filter{Class: stores.ClassTransient}
	n, highest, err := store.Matching(b.ctx, filter, 1000)
	if err != nil || n != messages {
		b.tb.Fatalf("Matching = %d, %v, want %d", n, err, messages)
	}
	c := stores.Change{Verb: stores.VerbRetry, Filter: filter, Actor: actor, Reason: reason, UpTo: highest, Limit: limit}
	var batches []int
	for i := range messages {
		b.fails(store, fmt.Sprint("fails meanwhile ", i), settledFor)
		got, err := store.Change(b.ctx, c)
		if err != nil {
			b.tb.Fatalf("Change: %v", err)
		}
		batches = append(batches, got.Changed)
		if got.Done {
			break
		}
		if got.Next <= c.After {
			b.tb.Fatalf("Change after %d goes on after %d", c.After, got.Next)
		}
		c.After = got.Next
	}
	sum := 0
	for _, n := range batches {
		sum += n
		if n > limit {
			b.tb.Errorf("a batch changed %d messages, with a limit of %d", n, limit)
		}
	}
	if sum != messages || len(batches) > messages/limit+2 {
		b.tb.Errorf("the batches changed %v messages, want %d", batches, messages)
	}
	for _, f := range b.failures() {
		id := string(f.key.ID)
		want := 0
		if strings.HasPrefix(id, "message ") {
			want = 1
		}
		if f.redrives != want {
			b.tb.Errorf("%q was tried again %d times, want %d", id, f.redrives, want)
		}
	}
	if all, err := store.Audit(b.ctx, 0, 1000); err != nil || len(all) != messages {
		b.tb.Errorf("the audit has %d entries, %v, want %d", len(all), err, messages)
	}
	b.paired()
}

func changeVerbs(b *bench) {
	store := b.open()
	all := []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded, stores.StatusCompleted}
	b.fails(store, "pending")
	b.fails(store, "failed", settledFor)
	b.fails(store, "discarded", settledFor)
	b.complete(store, claimFor("completed", "completed"))
	b.change(store, stores.VerbDiscard, stores.Filter{ID: []byte("discarded")}, 1)
	b.change(store, stores.VerbDiscard, stores.Filter{ID: []byte("discarded")}, 0) // not among pending and failed
	b.change(store, stores.VerbDiscard, stores.Filter{Status: all}, 2)             // once is enough
	b.change(store, stores.VerbRetry, stores.Filter{}, 0)
	b.change(store, stores.VerbRetry, stores.Filter{Status: all}, 3)
	before := b.snapshot()
	for _, verb := range []stores.Verb{"", "RETRY", stores.VerbRelease, stores.VerbReject} {
		if _, err := store.Change(b.ctx, stores.Change{Verb: verb, Limit: 10}); err == nil {
			b.tb.Errorf("Change with the verb %q returned nil", verb)
		}
	}
	b.unchanged(before, "Change with a verb that is none of its own")
	b.expect(store, claimFor("completed", "completed"), stores.Duplicate)
	b.paired()
}

// changeInFlight changes messages while one of them runs. It waits for nobody, but
// for the turn of a single writer.
func changeInFlight(b *bench) {
	here, elsewhere := b.open(), b.open()
	single := here.Capabilities().SingleWriter
	version := b.fails(here, "in flight")
	b.fails(here, "free here")
	b.fails(here, "free elsewhere")
	attempt := b.take(here, claimFor("in flight", "in flight"), version)
	b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) })
	b.write(attempt, Effect{Key: "in flight", Label: "first", Run: 1})
	before := b.failure("in flight")
	open := map[string]stores.Store{"free here": here, "free elsewhere": elsewhere}
	if b.claimsShared(here) {
		open["free elsewhere"] = here
	}
	for free, store := range open {
		filter := stores.Filter{Numbers: []int64{before.number, b.failure(free).number}}
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		begun := time.Now()
		got, err := store.Change(ctx, stores.Change{Verb: stores.VerbRetry, Filter: filter, Actor: actor, Limit: 10})
		cancel()
		switch {
		case single && errors.Is(err, stores.ErrUnavailable):
		case err != nil || got.Changed != 1 || got.Busy != 1 || !got.Done:
			b.tb.Errorf("Change while a message is in flight = %+v, %v, want one changed and one busy", got, err)
		}
		if took := time.Since(begun); took > promptly {
			b.tb.Errorf("Change while a message is in flight took %s", took)
		}
		if after := b.failure("in flight"); after.version != before.version {
			b.tb.Errorf("Change has changed a message that is in flight")
		}
	}
	b.commit(attempt)
	b.expect(elsewhere, claimFor("in flight", "in flight"), stores.Duplicate)
	b.paired()
}

func audit(b *bench) {
	store := b.open()
	b.fails(store, "failed \x00\xff", settledFor)
	b.fails(store, "pending")
	number := b.failure("failed \x00\xff").number
	for i, c := range []stores.Change{
		{Verb: stores.VerbRetry, Actor: "first", Reason: "a reason"},
		{Verb: stores.VerbDiscard, Actor: "\x1b[31m\x00\xff'; --", Reason: strings.Repeat("long \U0001F600", 10_000)},
		{Verb: stores.VerbRetry, Filter: stores.Filter{Status: []stores.Status{stores.StatusDiscarded}}},
	} {
		c.Limit, c.Filter.Numbers = 10, []int64{number}
		if got, err := store.Change(b.ctx, c); err != nil || got.Changed != 1 {
			b.tb.Fatalf("change %d: %+v, %v, want one changed", i, got, err)
		}
	}
	all, err := store.Audit(b.ctx, 0, 100)
	if err != nil || len(all) != 3 {
		b.tb.Fatalf("Audit = %+v, %v, want 3 entries", all, err)
	}
	slices.Reverse(all)
	for i, want := range []struct {
		verb          stores.Verb
		before, after string
	}{{stores.VerbRetry, "failed", "pending"}, {stores.VerbDiscard, "pending", "discarded"}, {stores.VerbRetry, "discarded", "pending"}} {
		e := all[i]
		if e.Verb != want.verb || e.Before != want.before || e.After != want.after || e.Number != number || e.Consumer != consumer ||
			string(e.MessageID) != "failed \x00\xff" || time.Since(e.At).Abs() > time.Hour {
			b.tb.Errorf("entry %d is %+v, want %+v", i, e, want)
		}
		if len(e.Actor) > stores.MaxDetailBytes || len(e.Reason) > stores.MaxDetailBytes || !utf8.ValidString(e.Actor+e.Reason) {
			b.tb.Errorf("entry %d has an actor of %d and a reason of %d bytes, %.40q, %.40q", i, len(e.Actor), len(e.Reason), e.Actor, e.Reason)
		}
		if i > 0 && (e.ID <= all[i-1].ID || e.At.Before(all[i-1].At)) {
			b.tb.Errorf("entry %d comes before the one before it: %+v", i, e)
		}
	}
	if all[0].Actor != "first" || all[0].Reason != "a reason" || !strings.Contains(all[1].Actor, "[31m") || !strings.HasPrefix(all[1].Reason, "long ") {
		b.tb.Errorf("the actors and reasons are kept as %.200q", fmt.Sprint(all))
	}
	if some, err := store.Audit(b.ctx, all[2].ID, 1); err != nil || len(some) != 1 || some[0].ID != all[1].ID {
		b.tb.Errorf("Audit before the last entry, with a limit of one = %+v, %v", some, err)
	}
}
