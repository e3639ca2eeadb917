package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func resolveChecks() []check {
	return []check{
		{name: "settled keys", run: resolvable(resolveSettled)},
		{name: "waits for a commit", run: resolvable(func(b *bench, here, there stores.Store) { resolveWaits(b, here, there, true) })},
		{name: "waits for a rollback", run: resolvable(func(b *bench, here, there stores.Store) { resolveWaits(b, here, there, false) })},
		{name: "is bounded", run: resolvable(resolveBounded)},
	}
}

// resolvable runs a check in one store and with a second one.
func resolvable(f func(b *bench, here, there stores.Store)) func(b *bench) {
	return func(b *bench) {
		here, elsewhere := b.open(), b.open()
		if _, ok := here.(stores.Resolver); !ok {
			b.tb.Logf("not checked: %T is no stores.Resolver", here)
			return
		}
		f(b, here, here)
		f(b, here, elsewhere)
	}
}

// name keeps the keys of one store apart from those of two.
func name(prefix string, here, there stores.Store) string {
	if here == there {
		return prefix + " here"
	}
	return prefix + " elsewhere"
}

func (b *bench) resolve(store stores.Store, claim stores.Claim, want bool) {
	b.tb.Helper()
	got, err := store.(stores.Resolver).Resolve(b.ctx, claim.Key)
	if err != nil || got != want {
		b.tb.Errorf("Resolve(%s) = %t, %v, want %t", claim.Key, got, err, want)
	}
}

func resolveSettled(b *bench, here, there stores.Store) {
	claim := claimFor(name("settled", here, there), "payload")
	b.resolve(there, claim, false)
	attempt := b.win(here, claim)
	b.rollback(attempt)
	b.resolve(there, claim, false)
	b.complete(here, claim)
	before := b.snapshot()
	b.resolve(there, claim, true)
	b.resolve(there, claimFor("never seen", ""), false)
	b.unchanged(before, "Resolve")
}

// resolveWaits asks while the attempt is open: the answer must be what becomes of it.
func resolveWaits(b *bench, here, there stores.Store, commit bool) {
	claim := claimFor(name("waits", here, there), "payload")
	if here.Capabilities().ClaimsShared {
		b.resolveCloses(here, there, claim)
		return
	}
	attempt := b.win(here, claim)
	b.write(attempt, Effect{Key: string(claim.Key.ID), Label: "first", Run: 1})
	type result struct {
		completed bool
		err       error
	}
	answered := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		defer cancel()
		completed, err := there.(stores.Resolver).Resolve(ctx, claim.Key)
		answered <- result{completed, err}
	}()
	// Long enough to be asked; there is no way to see that it waits.
	select {
	case r := <-answered:
		b.tb.Errorf("Resolve = %t, %v while the attempt was open", r.completed, r.err)
		b.rollback(attempt)
		return
	case <-time.After(200 * time.Millisecond):
	}
	if commit {
		b.commit(attempt)
	} else {
		b.rollback(attempt)
	}
	if r := <-answered; r.err != nil || r.completed != commit {
		b.tb.Errorf("Resolve = %t, %v after an attempt whose end was commit %t", r.completed, r.err, commit)
	}
}

// resolveCloses: where claims hold no key, Resolve waits for nobody, and an attempt that it has
// found open cannot be committed any more.
func (b *bench) resolveCloses(here, there stores.Store, claim stores.Claim) {
	b.tb.Helper()
	attempt := b.win(here, claim)
	b.write(attempt, Effect{Key: string(claim.Key.ID), Label: "first", Run: 1})
	b.resolve(there, claim, false)
	wantErr(b.tb, "Commit after Resolve", attempt.Commit(b.ctx), stores.ErrNotCommitted)
	claim.Take = b.look(there, claim, stores.Claimable).Failure.Version
	b.resolve(there, claim, false)
	b.complete(there, claim)
	b.resolve(here, claim, true)
	if got := b.effects(string(claim.Key.ID)); len(got) != 1 {
		b.tb.Errorf("effects %v are committed, want one", got)
	}
}

func resolveBounded(b *bench, here, there stores.Store) {
	if b.claimsShared(here) {
		return
	}
	claim := claimFor(name("bounded", here, there), "payload")
	attempt := b.win(here, claim)
	ctx, cancel := context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	begun := time.Now()
	completed, err := there.(stores.Resolver).Resolve(ctx, claim.Key)
	if took := time.Since(begun); took > promptly {
		b.tb.Errorf("Resolve took %s with a context of 300 ms", took)
	}
	if completed || !errors.Is(err, stores.ErrUnavailable) {
		b.tb.Errorf("Resolve = %t, %v of an attempt that is open for longer than its context, want ErrUnavailable", completed, err)
	}
	b.commit(attempt)
	b.resolve(there, claim, true)
}
