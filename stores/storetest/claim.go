package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func claimChecks() []check {
	return []check{
		{name: "first sight and duplicates", run: firstSight},
		{name: "rollback leaves nothing", run: rollbackLeavesNothing},
		{name: "nothing is visible before the commit", run: invisibleBeforeCommit},
		{name: "conflict", run: conflict},
		{name: "fingerprints that cannot be compared", run: incomparable},
		{name: "verdict", run: verdictOfDuplicate},
		{name: "in flight in the same store", run: inFlightHere},
		{name: "in flight in another process", run: inFlightElsewhere},
		{name: "claimed in two processes", run: claimedTwice},
		{name: "every answer gives its connection back", run: connectionsComeBack},
		{name: "the context of Begin", run: beginContext},
		{name: "the end of an attempt", run: endOfAttempt},
		{name: "consumers are isolated", run: isolation},
		{name: "before Register", run: beforeRegister},
		{name: "a stuck holder frees its key", run: bound},
		{name: "closed", run: closed},
	}
}

func firstSight(b *bench) {
	here, elsewhere := b.open(), b.open()
	claim := claimFor("first sight", "payload")
	b.complete(here, claim)
	if !b.completed(claim.Key) {
		b.tb.Errorf("%s: no completed row after the commit", claim.Key)
	}
	if got := b.effects(string(claim.Key.ID)); len(got) != 1 {
		b.tb.Errorf("%s: effects %v are committed, want one", claim.Key, got)
	}
	before := b.snapshot()
	for range 3 {
		b.expect(here, claim, stores.Duplicate)
		b.expect(elsewhere, claim, stores.Duplicate)
	}
	b.unchanged(before, "a duplicate")
}

func rollbackLeavesNothing(b *bench) {
	store := b.open()
	before := b.snapshot()
	claim := claimFor("rollback", "payload")
	for range 3 {
		attempt := b.win(store, claim)
		b.write(attempt, Effect{Key: "rollback", Label: "first", Run: 1})
		b.rollback(attempt)
		b.unchanged(before, "an attempt that was rolled back")
	}
	claim = claimFor("rollback", "another payload") // the fingerprint was not kept either
	b.complete(store, claim)
}

func invisibleBeforeCommit(b *bench) {
	store := b.open()
	before := b.snapshot()
	attempt := b.win(store, claimFor("visible", "payload"))
	b.write(attempt, Effect{Key: "visible", Label: "first", Run: 1})
	b.unchanged(before, "an attempt that still runs")
	b.commit(attempt)
}

func conflict(b *bench) {
	here, elsewhere := b.open(), b.open()
	first, second := claimFor("conflict", "payload"), claimFor("conflict", "another payload")
	b.complete(here, first)
	before := b.snapshot()
	for _, store := range []stores.Store{here, elsewhere} {
		v := b.expect(store, second, stores.Conflict)
		if v.Fingerprint != first.Fingerprint {
			b.tb.Errorf("the verdict of a conflict has fingerprint %x, want that of the completed row, %x", v.Fingerprint.Bytes(), first.Fingerprint.Bytes())
		}
	}
	b.unchanged(before, "a conflict")
	b.expect(here, first, stores.Duplicate)
}

func incomparable(b *bench) {
	store := b.open()
	var none stores.Fingerprint
	plain := stores.NewFingerprint(stores.FingerprintKey{}, []byte("payload"))
	key1 := stores.NewFingerprint(stores.NewFingerprintKey(1, []byte("secret")), []byte("payload"))
	key2 := stores.NewFingerprint(stores.NewFingerprintKey(2, []byte("secret")), []byte("payload"))
	for i, pair := range [][2]stores.Fingerprint{{none, none}, {none, plain}, {plain, none}, {plain, key1}, {key1, plain}, {key1, key2}} {
		claim := claimFor(fmt.Sprint("incomparable ", i), "")
		claim.Fingerprint = pair[0]
		b.complete(store, claim)
		claim.Fingerprint = pair[1]
		if v := b.expect(store, claim, stores.Duplicate); !v.FingerprintUnknown {
			b.tb.Errorf("a duplicate of %x with %x does not have FingerprintUnknown set", pair[0].Bytes(), pair[1].Bytes())
		}
		claim.Fingerprint = pair[0]
		if v := b.expect(store, claim, stores.Duplicate); v.FingerprintUnknown != (pair[0] == none) {
			b.tb.Errorf("a duplicate of %x with the same has FingerprintUnknown = %t", pair[0].Bytes(), v.FingerprintUnknown)
		}
	}
}

func verdictOfDuplicate(b *bench) {
	here, elsewhere := b.open(), b.open()
	trace, ok := stores.ParseTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if !ok {
		b.tb.Fatal("storetest: the trace parent is not valid")
	}
	const skew = time.Hour // of the database's clock
	earliest := time.Now().Add(-skew)
	claim := claimFor("verdict", "payload")
	claim.TraceParent = trace
	b.complete(here, claim)
	other := claim
	other.TraceParent = stores.TraceParent{1}
	v := b.expect(elsewhere, other, stores.Duplicate)
	if v.TraceParent != trace {
		b.tb.Errorf("TraceParent is %q, want that of the delivery that did the work, %q", v.TraceParent, trace)
	}
	if v.CompletedAt.Before(earliest) || v.CompletedAt.After(time.Now().Add(skew)) {
		b.tb.Errorf("CompletedAt is %s, want about now", v.CompletedAt)
	}
	if v.Fingerprint != claim.Fingerprint || v.FingerprintUnknown {
		b.tb.Errorf("the verdict has fingerprint %x, unknown %t", v.Fingerprint.Bytes(), v.FingerprintUnknown)
	}
	without := claimFor("no trace", "payload")
	b.complete(here, without)
	if v := b.expect(elsewhere, without, stores.Duplicate); !v.TraceParent.IsZero() {
		b.tb.Errorf("TraceParent is %q for a message that had none", v.TraceParent)
	}
}

func inFlightHere(b *bench) {
	store := b.open()
	inFlight(b, store, store, false)
}

func inFlightElsewhere(b *bench) {
	here, elsewhere := b.open(), b.open()
	if b.claimsShared(here) {
		return
	}
	inFlight(b, here, elsewhere, true)
}

// claimsShared reports whether the store says that claims are not exclusive. That is logged.
func (b *bench) claimsShared(store stores.Store) bool {
	b.tb.Helper()
	if !store.Capabilities().ClaimsShared {
		return false
	}
	b.tb.Logf("not checked: the store says that several processes may claim a message at the same moment")
	return true
}

// unordered reports whether the store says that it keeps no order keys. That is logged.
func (b *bench) unordered(store stores.Store) bool {
	b.tb.Helper()
	if !store.Capabilities().Unordered {
		return false
	}
	b.tb.Logf("not checked: the store says that it keeps no order keys")
	return true
}

// claimedTwice: where two processes may claim one message, one commits, and of the other
// nothing is left. It is told that it was interrupted, whoever commits first.
func claimedTwice(b *bench) {
	here, elsewhere := b.open(), b.open()
	if !here.Capabilities().ClaimsShared {
		b.tb.Logf("not checked: the store says that one process at most has claimed a message")
		return
	}
	for i, order := range [][2]int{{0, 1}, {1, 0}} {
		claim := claimFor(fmt.Sprint("claimed twice ", i), "payload")
		attempts := []stores.Attempt{b.win(here, claim), b.win(elsewhere, claim)}
		for run, attempt := range attempts {
			b.write(attempt, Effect{Key: string(claim.Key.ID), Label: "first", Run: run + 1})
		}
		b.commit(attempts[order[0]])
		loser := attempts[order[1]]
		wantErr(b.tb, "Commit of the second", loser.Commit(b.ctx), stores.ErrNotCommitted)
		if i, ok := loser.(stores.Interruptible); !ok || i.Interrupted() == nil {
			b.tb.Errorf("the second is not interrupted, so that its attempt would count")
		}
		if got := b.effects(string(claim.Key.ID)); len(got) != 1 || got[0].Run != order[0]+1 {
			b.tb.Errorf("effects %v are committed, want that of the first", got)
		}
		b.expect(here, claim, stores.Duplicate)
		b.expect(elsewhere, claim, stores.Duplicate)
	}
}

// inFlight asks for a key while it is held. The holder ends only after the answers,
// so that one who waits for it is noticed.
func inFlight(b *bench, holder, asker stores.Store, unavailable bool) {
	claim, other := claimFor("in flight", "payload"), claimFor("in flight", "another payload")
	attempt := b.win(holder, claim)
	b.tb.Cleanup(func() { _ = attempt.Rollback(context.Background()) }) // nothing after the commit
	b.write(attempt, Effect{Key: string(claim.Key.ID), Label: "first", Run: 1})
	for _, c := range []stores.Claim{claim, claim, other} {
		b.turnedAway(asker, c, unavailable, stores.InFlight)
	}
	b.commit(attempt)
	b.expect(asker, claim, stores.Duplicate)
	b.expect(asker, other, stores.Conflict)
}

// turnedAway asks for a key that is in flight. The answer must come promptly and be
// one of outcomes, or ErrUnavailable from a store that cannot tell.
func (b *bench) turnedAway(asker stores.Inbox, c stores.Claim, unavailable bool, outcomes ...stores.Outcome) {
	b.tb.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, promptly+time.Second)
	defer cancel()
	begun := time.Now()
	second, verdict, err := asker.Begin(ctx, c)
	took := time.Since(begun)
	switch {
	case second != nil:
		b.tb.Errorf("two attempts hold one key")
		b.rollback(second)
	case took > promptly:
		b.tb.Fatalf("Begin of a key in flight took %s: it waits for the other delivery", took)
	case unavailable && errors.Is(err, stores.ErrUnavailable):
	case err != nil || !slices.Contains(outcomes, verdict.Outcome):
		b.tb.Errorf("Begin of a key in flight = %s, %v, want %v", verdict.Outcome, err, outcomes)
	}
}

func connectionsComeBack(b *bench) {
	const times = 40 // more than connections in any sensible pool of a test
	store := b.open()
	done, conflict := claimFor("done", "payload"), claimFor("done", "another payload")
	b.complete(store, done)
	held := claimFor("held", "payload")
	holder := b.win(store, held)
	for range times {
		b.expect(store, held, stores.InFlight)
	}
	b.rollback(holder)
	for range times {
		b.expect(store, done, stores.Duplicate)
		b.expect(store, conflict, stores.Conflict)
		b.rollback(b.win(store, held))
	}
	b.complete(store, held)
}

func beginContext(b *bench) {
	store := b.open()
	claim := claimFor("context", "payload")
	ctx, cancel := context.WithCancel(b.ctx)
	attempt, _, err := store.Begin(ctx, claim)
	if err != nil {
		b.tb.Fatalf("Begin: %v", err)
	}
	b.write(attempt, Effect{Key: "context", Label: "first", Run: 1})
	cancel()
	b.write(attempt, Effect{Key: "context", Label: "second", Run: 1})
	b.commit(attempt)
	if got := b.effects("context"); len(got) != 2 {
		b.tb.Errorf("effects %v are committed, want both: cancelling the context of Begin touched the attempt", got)
	}

	before := b.snapshot()
	attempt, verdict, err := store.Begin(ctx, claimFor("never begun", "payload"))
	if err == nil || attempt != nil {
		b.tb.Errorf("Begin with a context that has ended = %s, nil", verdict.Outcome)
	}
	b.unchanged(before, "Begin with a context that has ended")
	// The server may take a moment to notice that nobody waits for what it was sent.
	if !poll(b.ctx, patience, func() bool {
		attempt, verdict = b.begin(store, claimFor("never begun", "payload"))
		return verdict.Outcome != stores.InFlight
	}) || attempt == nil {
		b.tb.Fatalf("Begin after one with a context that has ended = %s, want claimed", verdict.Outcome)
	}
	b.commit(attempt)
}

func endOfAttempt(b *bench) {
	store := b.open()
	claim := claimFor("end", "payload")

	attempt := b.win(store, claim)
	b.write(attempt, Effect{Key: "end", Label: "first", Run: 1})
	b.rollback(attempt)
	b.rollback(attempt)
	wantErr(b.tb, "Commit after Rollback", attempt.Commit(b.ctx), stores.ErrNotCommitted)

	attempt = b.win(store, claim)
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	wantErr(b.tb, "Commit with a context that has ended", attempt.Commit(ended), stores.ErrNotCommitted, stores.ErrCommitUnknown)
	b.rollback(attempt)
	if b.completed(claim.Key) {
		b.tb.Errorf("Commit with a context that had ended before has committed")
	}

	attempt = b.win(store, claim)
	_ = attempt.Rollback(ended) // may have to close the connection
	b.within(patience, "Begin after Rollback with a context that has ended", func() {
		poll(b.ctx, patience, func() bool {
			var verdict stores.Verdict
			var err error
			attempt, verdict, err = store.Begin(b.ctx, claim)
			return err == nil && verdict.Outcome == stores.Claimed
		})
	})
	if attempt == nil {
		b.tb.Fatalf("the key is not free after Rollback with a context that has ended")
	}
	b.write(attempt, Effect{Key: "end", Label: "first", Run: 2})
	b.commit(attempt)
	b.rollback(attempt) // does nothing
	b.expect(store, claim, stores.Duplicate)
	if got := b.effects("end"); len(got) != 1 {
		b.tb.Errorf("effects %v are committed, want one", got)
	}
}

func isolation(b *bench) {
	store := b.open()
	b.register(store, another)
	mine := claimFor("shared id", "payload")
	theirs := claimFor("shared id", "another payload") // no conflict: another consumer's row
	theirs.Key.Consumer = another

	attempt := b.win(store, mine)
	b.write(attempt, Effect{Key: "mine", Label: "first", Run: 1})
	b.commit(attempt)
	attempt = b.win(store, theirs)
	b.write(attempt, Effect{Key: "theirs", Label: "first", Run: 1})
	b.rollback(attempt)
	b.expect(store, mine, stores.Duplicate)
	attempt = b.win(store, theirs)
	b.write(attempt, Effect{Key: "theirs", Label: "first", Run: 2})
	b.commit(attempt)
	b.expect(store, mine, stores.Duplicate)
	b.expect(store, theirs, stores.Duplicate)
	if got := b.allEffects(); len(got) != 2 || len(b.rows()) != 2 {
		b.tb.Errorf("two consumers of one id left effects %v and %d rows, want 2 and 2", got, len(b.rows()))
	}
}

func beforeRegister(b *bench) {
	store := b.openOnly()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	attempt, _, err := store.Begin(b.ctx, claimFor("id", "payload"))
	wantErr(b.tb, "Begin before Register", err, stores.ErrNotRegistered)
	b.noAttempt(attempt)
	wantErr(b.tb, "Quarantine before Register",
		store.Quarantine(b.ctx, stores.Quarantined{Consumer: consumer, Reason: stores.ReasonNoKey}), stores.ErrNotRegistered)
	b.register(b.open(), another) // another process, another consumer
	attempt, _, err = store.Begin(b.ctx, stores.Claim{Key: stores.Key{Consumer: another, ID: []byte("id")}})
	wantErr(b.tb, "Begin after another process has registered the consumer", err, stores.ErrNotRegistered)
	b.noAttempt(attempt)
}

func bound(b *bench) {
	store, other := b.open(), b.open()
	if !store.Capabilities().ServerBound {
		b.tb.Logf("not checked: the store says that its database has no bound for transactions that stand still")
		return
	}
	claim := claimFor("stuck", "payload")
	claim.Bound = 500 * time.Millisecond
	stuck := b.win(store, claim)
	b.write(stuck, Effect{Key: "stuck", Label: "first", Run: 1})
	// From here on the holder does nothing, as if it were stopped.
	claim.Bound = checkTimeout
	var attempt stores.Attempt
	freed := poll(b.ctx, patience, func() bool {
		var err error
		attempt, _, err = other.Begin(b.ctx, claim)
		if err != nil {
			b.tb.Errorf("Begin: %v", err)
		}
		return attempt != nil || err != nil
	})
	if !freed || attempt == nil {
		b.rollback(stuck)
		b.tb.Fatalf("the key of a holder that stands still is not free %s after a bound of 500 ms", patience)
	}
	b.write(attempt, Effect{Key: "stuck", Label: "first", Run: 2})
	b.commit(attempt)
	wantErr(b.tb, "Commit after the bound", stuck.Commit(b.ctx), stores.ErrNotCommitted, stores.ErrCommitUnknown)
	if got := b.effects("stuck"); len(got) != 1 || got[0].Run != 2 {
		b.tb.Errorf("effects %v are committed, want only that of the second holder", got)
	}
	b.healthy(store)
}

func closed(b *bench) {
	store := b.openOnly()
	if _, err := store.Migrate(b.ctx); err != nil {
		b.tb.Fatalf("Migrate: %v", err)
	}
	b.register(store, consumer)
	for range 2 {
		if err := store.Close(); err != nil {
			b.tb.Errorf("Close: %v", err)
		}
	}
	attempt, _, err := store.Begin(b.ctx, claimFor("id", "payload"))
	wantErr(b.tb, "Begin after Close", err, stores.ErrClosed)
	b.noAttempt(attempt)
	wantErr(b.tb, "Register after Close", store.Register(b.ctx, stores.Registration{Consumer: another}), stores.ErrClosed)
	wantErr(b.tb, "Quarantine after Close",
		store.Quarantine(b.ctx, stores.Quarantined{Consumer: consumer, Reason: stores.ReasonNoKey}), stores.ErrClosed)
	_, err = store.Migrate(b.ctx)
	wantErr(b.tb, "Migrate after Close", err, stores.ErrClosed)
	wantErr(b.tb, "Validate after Close", store.Validate(b.ctx), stores.ErrClosed)
	if resolver, ok := store.(stores.Resolver); ok {
		_, err = resolver.Resolve(b.ctx, claimFor("id", "").Key)
		wantErr(b.tb, "Resolve after Close", err, stores.ErrClosed, stores.ErrUnavailable)
	}
}
