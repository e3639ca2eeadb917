package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

func recordChecks() []check {
	return []check{
		{name: "a first failure", run: recordFirst},
		{name: "later failures", run: recordLater},
		{name: "guarded by the version", run: recordGuarded},
		{name: "one of many", run: recordOnce},
		{name: "never touches a completed row", run: recordCompleted},
		{name: "never touches a settled row", run: recordSettled},
		{name: "never waits for a first delivery in flight", run: recordInFlight},
		{name: "never waits for a takeover in flight", run: recordTakeover},
		{name: "counts outlast a rollback", run: recordOutlasts},
		{name: "consumers are isolated", run: recordIsolated},
		{name: "parked without content", run: parkedWithout},
		{name: "content byte by byte", run: recordContent},
		{name: "presumed", run: recordPresumed},
		{name: "history is bounded", run: recordHistory},
		{name: "hostile text", run: recordHostile},
	}
}

func recordFirst(b *bench) {
	store := b.open()
	claim := claimFor("first", "payload")
	claim.OrderKey = []byte("order \x00\xff")
	claim.TraceParent = stores.TraceParent{1: 1, 20: 2}
	f := failureOf(claim)
	f.Attempts, f.Uncounted = 2, 1
	version := b.record(store, f)
	b.paired()
	got := b.failure("first")
	want := stores.FailureState{
		Version: version, Status: stores.StatusPending, Placement: stores.PlacementParked, Content: stores.ContentKept,
		Class: f.Class, Attempts: 2, Uncounted: 1,
	}
	if got.state != want {
		b.tb.Errorf("a first failure is kept as %+v, want %+v", got.state, want)
	}
	if got.error != f.Error || got.cause != f.Cause || got.topic != f.Topic || got.coordinates != f.Coordinates || !bytes.Equal(got.orderKey, f.OrderKey) {
		b.tb.Errorf("a first failure is kept as %+v, want %+v", got, f)
	}
	if !got.due || got.reserved || got.redrives != 0 {
		b.tb.Errorf("a first failure is due %t, reserved %t, tried again %d times by an operator", got.due, got.reserved, got.redrives)
	}
	if len(got.history) != 1 || got.history[0].Class != f.Class || got.history[0].Error != f.Error || got.history[0].At.IsZero() {
		b.tb.Errorf("the history of a first failure is %+v", got.history)
	}
	b.sameContent("a first failure", got.content, *f.Content)
	if v := b.look(store, claim, stores.Parked); v.Failure.Version != version {
		b.tb.Errorf("Record returned version %d and Look sees %d", version, v.Failure.Version)
	}

	b.fails(store, "at once", settledFor)
	if got := b.failure("at once"); got.state.Status != stores.StatusFailed || got.due {
		b.tb.Errorf("a message that failed for good at once is kept as %+v", got)
	}
	b.paired()
}

func recordLater(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("later", "payload")
	claim.OrderKey = []byte("order")
	first := failureOf(claim)
	version := b.record(here, first)
	number := b.failure("later").number
	next := stores.Failure{ // all that is not given stays
		Key: claim.Key, Fingerprint: claim.Fingerprint, Version: version, Status: stores.StatusPending,
		Placement: stores.PlacementParked, Attempts: 2, Uncounted: 5, DueIn: later, Class: stores.ClassTimeout, Error: "second", Cause: "cause",
	}
	version = b.record(elsewhere, next)
	got := b.failure("later")
	if got.number != number || got.version != version {
		b.tb.Errorf("a second failure has number %d, version %d, want number %d, version %d", got.number, got.version, number, version)
	}
	if got.state.Attempts != 2 || got.state.Uncounted != 5 || got.state.Class != stores.ClassTimeout || got.error != "second" || got.cause != "cause" {
		b.tb.Errorf("a second failure is kept as %+v", got)
	}
	if got.topic != first.Topic || got.coordinates != first.Coordinates || !bytes.Equal(got.orderKey, first.OrderKey) {
		b.tb.Errorf("a second failure without a place and an order key is kept as %+v, want those of the first", got)
	}
	b.sameContent("a second failure without content", got.content, *first.Content)
	b.wantDue(here)

	next = changed(failureOf(claim), func(f *stores.Failure) {
		f.Version, f.Status, f.Coordinates, f.Error = version, stores.StatusFailed, "elsewhere", "third"
		f.Content.Payload = []byte("another payload")
	})
	version = b.record(here, next)
	got = b.failure("later")
	if got.state.Status != stores.StatusFailed || got.due || got.coordinates != "elsewhere" || got.version != version {
		b.tb.Errorf("a last failure is kept as %+v", got)
	}
	b.sameContent("a last failure with new content", got.content, *next.Content)
	errs := make([]string, len(got.history))
	for i, attempt := range got.history {
		errs[i] = attempt.Error
		if i > 0 && attempt.At.Before(got.history[i-1].At) {
			b.tb.Errorf("attempt %d was at %s, before the one before it", i, attempt.At)
		}
	}
	if want := []string{first.Error, "second", "third"}; !slices.Equal(errs, want) {
		b.tb.Errorf("the history is %q, want %q", errs, want)
	}
	b.paired()
}

func recordGuarded(b *bench) {
	here, elsewhere := b.open(), b.open()
	f := failureOf(claimFor("guarded", "payload"))
	first := b.record(here, f)
	b.refuses(elsewhere, f, false, "Record of a first failure of a message that has failed")
	f.Version = first
	second := b.record(elsewhere, f)
	if second == first {
		b.tb.Errorf("two states of a row have version %d", first)
	}
	b.refuses(here, f, false, "Record with the version before")
	b.fails(here, "another")
	f.Version = b.failure("another").version
	b.refuses(here, f, false, "Record with the version of another message")
	unseen := failureOf(claimFor("unseen", "payload"))
	for _, version := range []int64{1, first, second, -1, 1 << 62} {
		unseen.Version = version
		b.refuses(here, unseen, false, "Record with a version of a message that has no row")
	}
	f.Version = second
	b.record(here, f)
	b.paired()
}

// recordOnce: of many who have seen the same, one writes.
func recordOnce(b *bench) {
	open := []stores.Store{b.open(), b.open()}
	f := failureOf(claimFor("raced", "payload"))
	for _, what := range []string{"a first failure", "a second failure"} {
		var written atomic.Int64
		var version atomic.Int64
		var group sync.WaitGroup
		for i := range racers / 2 {
			group.Go(func() {
				err := b.retry(func() error {
					v, err := open[i%len(open)].Record(b.ctx, f)
					if err == nil {
						written.Add(1)
						version.Store(v)
					}
					return err
				})
				if err != nil && !errors.Is(err, stores.ErrChanged) {
					b.tb.Errorf("Record: %v", err)
				}
			})
		}
		group.Wait()
		if n := written.Load(); n != 1 {
			b.tb.Errorf("%s was recorded %d times", what, n)
		}
		if got := b.failure("raced"); got.version != version.Load() {
			b.tb.Errorf("%s: the row has version %d, Record returned %d", what, got.version, version.Load())
		}
		f.Version = version.Load()
	}
	b.paired()
}

func recordCompleted(b *bench) {
	here, elsewhere := b.open(), b.open()
	f := failureOf(claimFor("completed", "payload"))
	b.complete(here, claimFor("completed", "payload"))
	for _, version := range []int64{0, 1, 1 << 20} {
		f.Version = version
		b.refuses(here, f, false, "Record of a completed message")
		b.refuses(elsewhere, f, false, "Record of a completed message")
	}

	claim := claimFor("completed later", "payload")
	f = failureOf(claim)
	f.Version = b.record(here, f)
	b.commit(b.take(elsewhere, claim, f.Version))
	b.refuses(here, f, false, "Record with the version that was taken over")
	f.Version = 0
	b.refuses(here, f, false, "Record of a message that was completed at last")
	b.expect(here, claim, stores.Duplicate)
	b.paired()
}

func recordSettled(b *bench) {
	store := b.open()
	f := changed(failureOf(claimFor("failed", "payload")), settledFor)
	f.Version = b.record(store, f)
	b.refuses(store, f, false, "Record of a message that has failed for good")
	b.change(store, stores.VerbDiscard, stores.Filter{ID: f.Key.ID}, 1)
	f.Version = b.failure("failed").version
	b.refuses(store, f, false, "Record of a discarded message")
	f.Version = 0
	b.refuses(store, f, false, "Record of a first failure of a discarded message")
	b.paired()
}

func recordInFlight(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("in flight", "payload")
	for _, end := range []func(stores.Attempt){b.rollback, b.commit} {
		attempt := b.win(here, claim)
		b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) })
		b.write(attempt, Effect{Key: "in flight", Label: "first", Run: 1})
		b.refuses(here, failureOf(claim), false, "Record of a message whose first delivery is in flight")
		if !here.Capabilities().ClaimsShared {
			b.refuses(elsewhere, failureOf(claim), true, "Record of a message whose first delivery is in flight elsewhere")
		}
		end(attempt)
	}
	b.expect(elsewhere, claim, stores.Duplicate)
}

func recordTakeover(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("in flight", "payload")
	f := failureOf(claim)
	f.Version = b.record(here, f)
	for _, end := range []func(stores.Attempt){b.rollback, b.commit} {
		attempt := b.take(here, claim, f.Version)
		b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) })
		b.write(attempt, Effect{Key: "in flight", Label: "first", Run: 1})
		for _, version := range []int64{0, f.Version} {
			f := changed(f, func(f *stores.Failure) { f.Version = version })
			b.refuses(here, f, false, "Record of a message that is taken over in flight")
			if !here.Capabilities().ClaimsShared {
				b.refuses(elsewhere, f, true, "Record of a message that is taken over in flight elsewhere")
			}
		}
		end(attempt)
	}
	b.expect(elsewhere, claim, stores.Duplicate)
	b.paired()
}

// recordOutlasts: what an attempt does and how it ends has no part in the count.
func recordOutlasts(b *bench) {
	store := b.open()
	claim := claimFor("outlasts", "payload")
	f := changed(failureOf(claim), func(f *stores.Failure) { f.Start, f.Error, f.Class = true, "", stores.ClassCrash })
	f.Version = b.record(store, f)
	before := b.snapshot()
	attempt := b.take(store, claim, f.Version)
	b.write(attempt, Effect{Key: "outlasts", Label: "first", Run: 1})
	b.unchanged(before, "an attempt that was counted before and still runs")
	b.rollback(attempt)
	b.unchanged(before, "the rollback of an attempt that was counted before")
	if got := b.failure("outlasts"); got.state.Attempts != 1 || !got.state.Presumed {
		b.tb.Errorf("an attempt that was counted before and ended is kept as %+v", got.state)
	}
}

func recordIsolated(b *bench) {
	store := b.open()
	b.register(store, another)
	mine := claimFor("shared id", "payload")
	theirs := mine
	theirs.Key.Consumer = another
	version := b.record(store, failureOf(mine))
	b.look(store, theirs, stores.Claimable)
	b.refuses(store, changed(failureOf(theirs), func(f *stores.Failure) { f.Version = version }), false, "Record with the version of another consumer's row")
	b.record(store, changed(failureOf(theirs), settledFor))
	b.expect(store, mine, stores.Parked)
	b.expect(store, theirs, stores.Final)
	b.wantDue(store, "shared id")
	b.paired()
}
