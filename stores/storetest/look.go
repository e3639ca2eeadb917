package storetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func lookChecks() []check {
	return []check{
		{name: "where a message stands", run: lookEverywhere},
		{name: "the state of a failure", run: lookState},
		{name: "claims in flight", run: lookInFlight},
		{name: "gives its connection back", run: lookOften},
		{name: "many at a time", run: lookManyAtOnce},
		{name: "errors", run: lookErrors},
	}
}

// standing is a message in each state that a row can be in.
type standing struct {
	id      string
	outcome stores.Outcome // of Look
	status  stores.Status  // 0: there is no row
}

// stand puts one message into each state.
func (b *bench) stand(store stores.Store) []standing {
	b.tb.Helper()
	b.complete(store, claimFor("completed", "completed"))
	b.fails(store, "parked")
	b.fails(store, "parked for later", func(f *stores.Failure) { f.DueIn = later })
	b.fails(store, "redelivered", redelivered)
	b.fails(store, "redelivered later", redelivered, func(f *stores.Failure) { f.DueIn = later })
	b.fails(store, "failed", settledFor)
	b.fails(store, "discarded", settledFor)
	b.change(store, stores.VerbDiscard, stores.Filter{ID: []byte("discarded")}, 1)
	return []standing{
		{"unseen", stores.Claimable, 0},
		{"completed", stores.Duplicate, stores.StatusCompleted},
		{"parked", stores.Parked, stores.StatusPending},
		{"parked for later", stores.Parked, stores.StatusPending},
		{"redelivered", stores.Claimable, stores.StatusPending},
		{"redelivered later", stores.Deferred, stores.StatusPending},
		{"failed", stores.Final, stores.StatusFailed},
		{"discarded", stores.Final, stores.StatusDiscarded},
	}
}

func lookEverywhere(b *bench) {
	here, elsewhere := b.open(), b.open()
	all := b.stand(here)
	before := b.snapshot()
	for _, store := range []stores.Store{here, elsewhere} {
		for _, s := range all {
			v := b.look(store, claimFor(s.id, s.id), s.outcome)
			state := v.Failure
			switch {
			case s.status == 0 || s.status == stores.StatusCompleted:
				if state != (stores.FailureState{}) {
					b.tb.Errorf("%s: Look returned the failure %+v, want none", s.id, state)
				}
			case state.Version == 0 || state.Status != s.status || state.Attempts != 1 || state.Class != stores.ClassTransient:
				b.tb.Errorf("%s: Look returned the failure %+v, want status %s with one attempt", s.id, state, s.status)
			}
			if s.status == 0 {
				continue
			}
			if v.Fingerprint != claimFor(s.id, s.id).Fingerprint || v.FingerprintUnknown {
				b.tb.Errorf("%s: Look returned the fingerprint %x, unknown %t", s.id, v.Fingerprint.Bytes(), v.FingerprintUnknown)
			}
			b.look(store, claimFor(s.id, "another payload"), stores.Conflict)
			none := claimFor(s.id, s.id)
			none.Fingerprint = stores.Fingerprint{}
			if v := b.look(store, none, s.outcome); !v.FingerprintUnknown {
				b.tb.Errorf("%s: FingerprintUnknown is not set for a message without a fingerprint", s.id)
			}
		}
	}
	b.unchanged(before, "Look")
}

func lookState(b *bench) {
	store := b.open()
	claim := claimFor("state", "payload")
	claim.TraceParent = stores.TraceParent{1: 1, 20: 2}
	first := b.record(store, changed(failureOf(claim), redelivered))
	version := b.record(store, changed(failureOf(claim), func(f *stores.Failure) {
		redelivered(f)
		f.Version, f.Attempts, f.Uncounted, f.DueIn, f.Class = first, 4, 3, later, stores.ClassContention
		f.Content = &stores.Content{State: stores.ContentTooLarge}
		f.Start = true
	}))
	v := b.look(store, claim, stores.Deferred)
	got := v.Failure
	if got.DueIn < later-time.Minute || got.DueIn > later || got.Age < 0 || got.Age > time.Minute {
		b.tb.Errorf("due in %s at the age of %s, want in %s, just failed", got.DueIn, got.Age, later)
	}
	got.DueIn, got.Age = 0, 0
	want := stores.FailureState{
		Version: version, Status: stores.StatusPending, Placement: stores.PlacementRedelivered, Content: stores.ContentTooLarge,
		Class: stores.ClassContention, Attempts: 4, Uncounted: 3, Presumed: true,
	}
	if got != want {
		b.tb.Errorf("Look returned the failure %+v, want %+v", got, want)
	}
	if v.TraceParent != claim.TraceParent {
		b.tb.Errorf("Look returned the trace parent %q, want %q", v.TraceParent, claim.TraceParent)
	}
	aged := poll(b.ctx, patience, func() bool { return b.look(store, claim, stores.Deferred).Failure.Age > 10*time.Millisecond })
	if !aged {
		b.tb.Errorf("the age of a failure does not grow")
	}
}

func lookInFlight(b *bench) {
	here, elsewhere := b.open(), b.open()
	fresh, parked := claimFor("fresh", "payload"), claimFor("parked", "payload")
	version := b.record(here, failureOf(parked))
	looks := func(claim stores.Claim, want stores.Outcome) {
		b.within(promptly, "Look at a key in flight", func() {
			b.look(here, claim, want)
			b.look(elsewhere, claim, want)
		})
	}
	attempt := b.win(here, fresh)
	looks(fresh, stores.Claimable)
	b.commit(attempt)
	looks(fresh, stores.Duplicate)
	attempt = b.take(here, parked, version)
	looks(parked, stores.Parked)
	b.commit(attempt)
	looks(parked, stores.Duplicate)
}

func lookOften(b *bench) {
	const times = 40 // more than connections in any sensible pool of a test
	store := b.open()
	all := b.stand(store)
	b.within(patience, "looking often", func() {
		for range times {
			for _, s := range all {
				b.look(store, claimFor(s.id, s.id), s.outcome)
			}
		}
	})
	b.healthy(store)
}

// lookManyAtOnce looks up many messages at a time, which may share round trips: each gets its own
// answer, also beside those that give up.
func lookManyAtOnce(b *bench) {
	const (
		askers = 24
		rounds = 6
	)
	store := b.open()
	all := b.stand(store)
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	ask := func(asker int) {
		for round := range rounds {
			for i := range all {
				s := all[(asker+i)%len(all)]
				claim, want := claimFor(s.id, s.id), s.outcome
				switch (asker + round + i) % 4 {
				case 0:
					_, _ = store.Look(ended, claim.Key, claim.Fingerprint)
					continue
				case 1:
					if claim.Fingerprint = claimFor(s.id, "another payload").Fingerprint; s.status != 0 {
						want = stores.Conflict
					}
				}
				v, err := store.Look(b.ctx, claim.Key, claim.Fingerprint)
				if err != nil || v.Outcome != want || (s.status == 0 || s.status == stores.StatusCompleted) != (v.Failure.Version == 0) {
					b.tb.Errorf("%s, asked together with others: Look returned %s with the failure %+v, %v; want %s", s.id, v.Outcome, v.Failure, err, want)
				}
			}
		}
	}
	b.within(patience, "looking together", func() {
		var crowd sync.WaitGroup
		for asker := range askers {
			crowd.Go(func() { ask(asker) })
		}
		crowd.Wait()
	})
	b.healthy(store)
}

// lookErrors asks in ways that cannot be answered; the other calls about failures
// answer alike.
func lookErrors(b *bench) {
	store := b.open()
	stranger, foreign := claimFor("id", "payload"), stores.Consumer{Service: "storetest", Handler: "a stranger"}
	stranger.Key.Consumer = foreign
	_, err := store.Look(b.ctx, stranger.Key, stranger.Fingerprint)
	wantErr(b.tb, "Look before Register", err, stores.ErrNotRegistered)
	_, err = store.Record(b.ctx, failureOf(stranger))
	wantErr(b.tb, "Record before Register", err, stores.ErrNotRegistered)

	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	claim := claimFor("id", "payload")
	before := b.snapshot()
	if v, err := store.Look(ended, claim.Key, claim.Fingerprint); err == nil {
		b.tb.Errorf("Look with a context that has ended = %s, nil", v.Outcome)
	}
	if _, err := store.Record(ended, failureOf(claim)); err == nil {
		b.tb.Errorf("Record with a context that has ended returned nil")
	}
	b.unchanged(before, "calls with a context that has ended")
	b.healthy(store)

	shut := b.openOnly()
	b.register(shut, consumer)
	if err := shut.Close(); err != nil {
		b.tb.Errorf("Close: %v", err)
	}
	failuresClosed(b.ctx, b.tb, shut)
}

func failuresClosed(ctx context.Context, tb testing.TB, store stores.Store) {
	tb.Helper()
	claim := claimFor("id", "payload")
	_, err := store.Look(ctx, claim.Key, claim.Fingerprint)
	wantErr(tb, "Look after Close", err, stores.ErrClosed)
	_, err = store.Record(ctx, failureOf(claim))
	wantErr(tb, "Record after Close", err, stores.ErrClosed)
	_, err = store.Due(ctx, stores.DueQuery{Consumer: consumer, Limit: 1, Reserve: reserve})
	wantErr(tb, "Due after Close", err, stores.ErrClosed)
	_, err = store.Backlog(ctx, 1)
	wantErr(tb, "Backlog after Close", err, stores.ErrClosed)
	_, err = store.Messages(ctx, stores.MessageQuery{Limit: 1})
	wantErr(tb, "Messages after Close", err, stores.ErrClosed)
	_, err = store.Change(ctx, stores.Change{Verb: stores.VerbRetry, Limit: 1})
	wantErr(tb, "Change after Close", err, stores.ErrClosed)
	err = store.Decide(ctx, stores.Decision{Verb: stores.VerbReject, RowID: 1})
	wantErr(tb, "Decide after Close", err, stores.ErrClosed)
}
