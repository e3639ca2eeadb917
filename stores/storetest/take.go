package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func takeChecks(h *Harness) []check {
	checks := []check{
		{name: "completes a parked message", run: takeParked},
		{name: "rollback leaves the row as it was", run: takeRolledBack},
		{name: "whatever placement and time", run: takeAny},
		{name: "only in that version", run: takeGuarded},
		{name: "once, of many", run: func(b *bench) { takeRace(b, b.open()) }},
		{name: "once, of many in two processes", run: func(b *bench) { takeRace(b, b.open(), b.open()) }},
		{name: "parked messages are not for deliveries", run: parkedToDeliveries},
		{name: "redelivered when it is due", run: takeRedelivered},
		{name: "redelivered once, of many", run: redeliveredRace},
		{name: "conflict", run: takeConflict},
		{name: "in flight", run: takeInFlight},
		{name: "resolve", run: takeResolve},
		{name: "a stuck holder frees its key", run: takeStuck},
	}
	for i, way := range h.Ways {
		if way.NotSQL {
			continue
		}
		checks = append(checks, check{name: "dishonest by " + way.Name, run: func(b *bench) { b.takeDishonest(way, i == 0) }})
	}
	return checks
}

func takeParked(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("parked", "payload")
	claim.TraceParent = stores.TraceParent{1: 1, 20: 2}
	version := b.record(here, failureOf(claim))
	before := b.snapshot()
	claim.TraceParent = stores.TraceParent{1: 3, 20: 4}
	attempt := b.take(elsewhere, claim, version)
	b.write(attempt, Effect{Key: "parked", Label: "first", Run: 1})
	b.unchanged(before, "a takeover that still runs")
	b.commit(attempt)
	if !b.completed(claim.Key) || len(b.failures()) > 0 {
		b.tb.Errorf("a takeover was committed: completed %t, %d rows among the failures, want completed and none", b.completed(claim.Key), len(b.failures()))
	}
	if got := b.effects("parked"); len(got) != 1 {
		b.tb.Errorf("effects %v are committed, want one", got)
	}
	before = b.snapshot()
	for _, store := range []stores.Store{here, elsewhere} {
		v := b.expect(store, claim, stores.Duplicate)
		if v.TraceParent != claim.TraceParent {
			b.tb.Errorf("the trace parent of a duplicate is %q, want that of the attempt that did the work, %q", v.TraceParent, claim.TraceParent)
		}
		if since := time.Since(v.CompletedAt); since > time.Hour || since < -time.Hour {
			b.tb.Errorf("CompletedAt is %s, want about now", v.CompletedAt)
		}
		claim := claim
		claim.Take = version
		b.expect(store, claim, stores.Duplicate)
	}
	b.unchanged(before, "a duplicate")
	if due := b.due(here, 10); len(due) > 0 {
		b.tb.Errorf("due are %q after all is completed", idsOf(due))
	}
}

func takeRolledBack(b *bench) {
	store := b.open()
	claim := claimFor("rolled back", "payload")
	version := b.record(store, failureOf(claim))
	before := b.snapshot()
	for range 3 {
		attempt := b.take(store, claim, version)
		b.write(attempt, Effect{Key: "rolled back", Label: "first", Run: 1})
		b.rollback(attempt)
		b.unchanged(before, "a takeover that was rolled back")
		b.expect(store, claim, stores.Parked)
	}
	b.commit(b.take(store, claim, version))
	b.paired()
}

func takeAny(b *bench) {
	store := b.open()
	for name, change := range map[string]func(*stores.Failure){
		"parked for later": func(f *stores.Failure) { f.DueIn = later },
		"redelivered":      redelivered,
		"redelivered later": func(f *stores.Failure) {
			redelivered(f)
			f.DueIn = later
		},
		"presumed": func(f *stores.Failure) { f.Start = true },
	} {
		version := b.fails(store, name, change)
		b.commit(b.take(store, claimFor(name, name), version))
		b.expect(store, claimFor(name, name), stores.Duplicate)
	}
	b.paired()
}

// takeGuarded takes what is not as it was seen. The row is judged, and never taken.
func takeGuarded(b *bench) {
	here, elsewhere := b.open(), b.open()
	f := failureOf(claimFor("changed", "changed"))
	first := b.record(here, f)
	f.Version = first
	b.record(here, f)
	all := append(b.stand(here), standing{"changed", stores.Parked, stores.StatusPending})
	before := b.snapshot()
	for _, store := range []stores.Store{here, elsewhere} {
		for _, s := range all {
			claim := claimFor(s.id, s.id)
			claim.Take = first // of another message, or what it was once
			attempt, v := b.begin(store, claim)
			if attempt != nil {
				b.tb.Errorf("%s: taken over with a version that it does not have", s.id)
				b.rollback(attempt)
			}
			want := s.outcome
			if want == stores.Claimable {
				want = stores.InFlight
			}
			if s.status != 0 && v.Outcome != want {
				b.tb.Errorf("%s: Begin with another version = %s, want %s", s.id, v.Outcome, want)
			}
		}
	}
	b.unchanged(before, "taking over in another version")
	for _, s := range all[len(all)-3:] { // failed, discarded, changed
		claim := claimFor(s.id, s.id)
		claim.Take = b.failure(s.id).version
		if s.status == stores.StatusPending {
			b.commit(b.win(here, claim))
			continue
		}
		b.expect(here, claim, stores.Final)
	}
}

// takeRace: of many who have seen the same version one runs.
func takeRace(b *bench, open ...stores.Store) {
	const messages = 5
	for n := range messages {
		r := race{b: b, shared: sharedBy(open)}
		key := fmt.Sprint("raced ", n)
		claim := claimFor(key, key)
		claim.Take = b.fails(open[0], key)
		var completed atomic.Int64
		var group sync.WaitGroup
		for i := range racers / 2 {
			group.Go(func() {
				hold := func() bool { // others have to be turned away meanwhile
					poll(b.ctx, time.Second, func() bool { return r.waited.Load() >= racers/8 })
					return false
				}
				if r.deliver(open[i%len(open)], claim, i, hold) {
					completed.Add(1)
				}
			})
		}
		group.Wait()
		if got := completed.Load(); got != 1 {
			b.tb.Errorf("%d of %d takeovers of one version were committed, want one", got, racers/2)
		}
	}
	keys := make([]string, messages)
	for n := range keys {
		keys[n] = fmt.Sprint("raced ", n)
	}
	b.settledOnce(keys)
	b.paired()
}

func parkedToDeliveries(b *bench) {
	here, elsewhere := b.open(), b.open()
	version := b.fails(here, "parked")
	b.fails(here, "parked for later", func(f *stores.Failure) { f.DueIn = later })
	b.fails(here, "failed", settledFor)
	before := b.snapshot()
	for _, store := range []stores.Store{here, elsewhere} {
		v := b.expect(store, claimFor("parked", "parked"), stores.Parked)
		if v.Failure.Version != version || v.Failure.Status != stores.StatusPending || v.Failure.Attempts != 1 || v.Failure.Content != stores.ContentKept {
			b.tb.Errorf("the verdict of a parked message has the failure %+v", v.Failure)
		}
		b.expect(store, claimFor("parked for later", "parked for later"), stores.Parked)
		b.expect(store, claimFor("failed", "failed"), stores.Final)
	}
	b.unchanged(before, "deliveries of failed messages")
}

func takeRedelivered(b *bench) {
	here, elsewhere := b.open(), b.open()
	const soon = time.Second
	claim := claimFor("redelivered", "payload")
	f := changed(failureOf(claim), redelivered)
	f.DueIn = later
	f.Version = b.record(here, f)
	for _, store := range []stores.Store{here, elsewhere} {
		if v := b.expect(store, claim, stores.Deferred); v.Failure.DueIn <= later-time.Minute || v.Failure.DueIn > later {
			b.tb.Errorf("a message that is due in %s is due in %s", later, v.Failure.DueIn)
		}
	}
	f.DueIn, f.Attempts = soon, 2
	f.Version = b.record(here, f)
	b.expect(elsewhere, claim, stores.Deferred)
	before := b.snapshot()
	var attempt stores.Attempt
	var v stores.Verdict
	if !poll(b.ctx, patience, func() bool {
		attempt, v = b.begin(elsewhere, claim)
		return attempt != nil
	}) {
		b.tb.Fatalf("a redelivered message that is due is not claimed, but %s", v.Outcome)
	}
	if v.Failure.Version != f.Version || v.Failure.Attempts != 2 || v.Failure.Placement != stores.PlacementRedelivered || v.Failure.DueIn > 0 {
		b.tb.Errorf("the claim of a message that failed before has the failure %+v", v.Failure)
	}
	b.write(attempt, Effect{Key: "redelivered", Label: "first", Run: 1})
	b.rollback(attempt)
	b.unchanged(before, "a redelivery that was rolled back")
	if v := b.look(here, claim, stores.Claimable); v.Failure.Version != f.Version {
		b.tb.Errorf("Look returned version %d, want %d", v.Failure.Version, f.Version)
	}
	b.complete(here, claim)
	b.expect(elsewhere, claim, stores.Duplicate)
	b.paired()
}

func redeliveredRace(b *bench) {
	open := []stores.Store{b.open(), b.open()}
	r := race{b: b, shared: sharedBy(open)}
	b.fails(open[0], "stampede", redelivered)
	claim := claimFor("stampede", "stampede")
	var completed, rolledBack atomic.Int64
	var group sync.WaitGroup
	for i := range racers {
		group.Go(func() {
			rollback := func() bool { return rolledBack.Add(1) <= 5 }
			if r.deliver(open[i%len(open)], claim, i, rollback) {
				completed.Add(1)
			}
		})
	}
	group.Wait()
	if n := completed.Load(); n != 1 {
		b.tb.Errorf("%d of %d deliveries of one failed message were committed, want one", n, racers)
	}
	b.settledOnce([]string{"stampede"})
	b.paired()
}

// takeConflict: another message under the id of one that has failed is not that one.
func takeConflict(b *bench) {
	here, elsewhere := b.open(), b.open()
	all := b.stand(here)
	before := b.snapshot()
	for _, s := range all {
		if s.status == 0 {
			continue
		}
		for _, store := range []stores.Store{here, elsewhere} {
			if v := b.expect(store, claimFor(s.id, "another payload"), stores.Conflict); v.Fingerprint != claimFor(s.id, s.id).Fingerprint {
				b.tb.Errorf("%s: the verdict of a conflict has the fingerprint %x, want that of the row", s.id, v.Fingerprint.Bytes())
			}
		}
	}
	b.unchanged(before, "conflicts")
}

func takeInFlight(b *bench) {
	here, elsewhere := b.open(), b.open()
	parked, failing := claimFor("parked", "parked"), claimFor("redelivered", "redelivered")
	version := b.fails(here, "parked")
	b.fails(here, "redelivered", redelivered)
	for _, claim := range []stores.Claim{parked, failing} {
		var attempt stores.Attempt
		outcomes := []stores.Outcome{stores.InFlight}
		if claim.Key.String() == parked.Key.String() {
			attempt = b.take(here, claim, version)
			outcomes = append(outcomes, stores.Parked) // what is committed says so
		} else {
			attempt = b.win(here, claim)
		}
		b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) })
		b.write(attempt, Effect{Key: string(claim.Key.ID), Label: "first", Run: 1})
		again := claim
		again.Take = b.failure(string(claim.Key.ID)).version
		for _, c := range []stores.Claim{claim, again} {
			b.turnedAway(here, c, false, outcomes...)
			if !here.Capabilities().ClaimsShared {
				b.turnedAway(elsewhere, c, true, outcomes...)
			}
		}
		b.commit(attempt)
		b.expect(elsewhere, claim, stores.Duplicate)
	}
	b.paired()
}

// takeResolve: an unknown commit of a takeover can be found out.
func takeResolve(b *bench) {
	here, elsewhere := b.open(), b.open()
	if _, ok := here.(stores.Resolver); !ok {
		b.tb.Logf("not checked: %T is no stores.Resolver", here)
		return
	}
	if b.claimsShared(here) {
		return
	}
	for _, there := range []stores.Store{here, elsewhere} {
		claim := claimFor(name("resolved", here, there), "payload")
		version := b.record(here, failureOf(claim))
		b.resolve(there, claim, false)
		for _, end := range []func(stores.Attempt){b.rollback, b.commit} {
			attempt := b.take(here, claim, version)
			answered := make(chan bool, 1)
			go func() {
				ctx, cancel := context.WithTimeout(b.ctx, patience)
				defer cancel()
				completed, err := there.(stores.Resolver).Resolve(ctx, claim.Key)
				if err != nil {
					b.tb.Errorf("Resolve: %v", err)
				}
				answered <- completed
			}()
			select { // long enough to be asked; there is no way to see that it waits
			case <-answered:
				b.tb.Fatalf("Resolve has answered while a takeover was open")
			case <-time.After(100 * time.Millisecond):
			}
			end(attempt)
			if completed := <-answered; completed != b.completed(claim.Key) {
				b.tb.Errorf("Resolve = %t after a takeover, completed %t", completed, b.completed(claim.Key))
			}
		}
		b.resolve(there, claim, true)
	}
}
