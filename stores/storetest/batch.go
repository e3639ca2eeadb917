package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
)

// batchChecks are of stores that let messages share transactions.
func batchChecks(h *Harness) []check {
	return []check{
		{name: "one commit for its members", run: batchCheck((*bench).batchCommits)},
		{name: "who has not won", run: batchCheck((*bench).batchUnwon)},
		{name: "what they say", run: batchCheck((*bench).batchSays)},
		{name: "what was purged is stale", run: batchCheck((*bench).batchStale)},
		{name: "the rows of messages alone", run: batchCheck((*bench).batchRows)},
		{name: "acts", run: batchCheck(func(b *bench, store stores.Store, _ stores.Batcher) {
			for _, act := range rotation.TurnEvery(b.tb, rotation.StoreDays, 8, actsOf(h)...) {
				b.batchActs(store, act, func(ctx context.Context) { _ = h.Acts[Act(act)](ctx, b.db) })
			}
		})},
		{name: "statements", run: batchCheck(func(b *bench, store stores.Store, _ stores.Batcher) { b.batchStatements(store) })},
	}
}

func actsOf(h *Harness) (acts []string) {
	for act := range h.Acts {
		acts = append(acts, string(act))
	}
	slices.Sort(acts)
	return acts
}

// batchStatements lets a member send statements in each way. All of them are sent in the
// first: how a scanner reads the others is known by then.
func (b *bench) batchStatements(store stores.Store) {
	ways := make(map[string]Way)
	for _, way := range b.h.Ways {
		ways[way.Name] = way
	}
	for _, name := range rotation.TurnEvery(b.tb, rotation.StoreDays, 4, slices.Sorted(maps.Keys(ways))...) {
		sent := statements[:8]
		if name == b.h.Ways[0].Name {
			sent = statements
		}
		for i, s := range sent {
			if i%8 == 7 {
				b.clear()
			}
			b.batchActs(store, fmt.Sprintf("%s %d: %s", name, i, s.steps[0]), func(ctx context.Context) {
				for _, step := range s.steps {
					_ = ways[name].Exec(ctx, step)
				}
			})
		}
		b.clear()
	}
}

// batchCheck leaves out stores that have no batches, if the adapter says so: one that has lost them
// would pass everything.
func batchCheck(run func(b *bench, store stores.Store, batcher stores.Batcher)) func(*bench) {
	return func(b *bench) {
		store := b.open()
		batcher, ok := store.(stores.Batcher)
		switch has := ok && batcher.BatchLimit(1) >= 2; {
		case has != (b.h.NoBatches == ""):
			b.tb.Fatalf("a %T has batches: %t, and NoBatches says %q", store, has, b.h.NoBatches)
		case has:
			run(b, store, batcher)
		default:
			b.tb.Logf("not checked: a %T has no batches: %s", store, b.h.NoBatches)
		}
	}
}

func (b *bench) beginBatch(batcher stores.Batcher, ids ...string) (stores.Batch, []stores.Member) {
	b.tb.Helper()
	claims := make([]stores.Claim, len(ids))
	for i, id := range ids {
		claims[i] = claimFor(id, "p")
	}
	return b.beginClaims(batcher, claims...)
}

func (b *bench) beginClaims(batcher stores.Batcher, claims ...stores.Claim) (stores.Batch, []stores.Member) {
	b.tb.Helper()
	batch, err := batcher.BeginBatch(b.ctx, claims)
	if err != nil {
		b.tb.Fatalf("BeginBatch: %v", err)
	}
	b.tb.Cleanup(func() { // or the store would wait for its connection
		_ = batch.Rollback(context.WithoutCancel(b.ctx))
		batch.Cut()
	})
	if members := batch.Members(); len(members) == len(claims) {
		return batch, members
	}
	b.tb.Fatalf("BeginBatch has %d members for %d claims", len(batch.Members()), len(claims))
	return nil, nil
}

// handled writes an effect for a member, which must succeed.
func (b *bench) handled(m stores.Member, id string) {
	b.tb.Helper()
	if m == nil {
		b.tb.Fatalf("%s is not won", id)
	}
	if err := b.h.Write(m.Context(b.ctx), Effect{Key: id, Label: "first", Run: 1}); err != nil {
		b.tb.Fatalf("Write(%s): %v", id, err)
	}
}

func (b *bench) kept(m stores.Member) {
	b.tb.Helper()
	if err := m.Keep(b.ctx); err != nil {
		b.tb.Fatalf("Keep: %v", err)
	}
}

// decided waits until nobody has the key, and checks that the message is completed exactly if
// its effect is there, once.
func (b *bench) decided(store stores.Store, id string) (completed bool) {
	b.tb.Helper()
	var outcome stores.Outcome
	poll(b.ctx, patience, func() bool {
		attempt, v := b.begin(store, claimFor(id, "p"))
		if attempt != nil {
			b.rollback(attempt)
		}
		outcome = v.Outcome
		return outcome != stores.InFlight
	})
	completed = outcome == stores.Duplicate
	n := len(b.effects(id))
	if !completed && outcome != stores.Claimed || n != 0 && !completed || n != 1 && completed {
		b.tb.Errorf("%s: it is %s, and has %d effects", id, outcome, n)
	}
	return completed
}

func (b *bench) batchCommits(store stores.Store, batcher stores.Batcher) {
	batch, members := b.beginBatch(batcher, "c", "a", "failed", "b", "unrun", "idle")
	for i, id := range []string{"c", "a", "failed", "b"} {
		b.expect(store, claimFor(id, "p"), stores.InFlight)
		b.handled(members[i], id)
		if id != "failed" {
			b.kept(members[i])
		} else if err := members[i].Leave(b.ctx); err != nil {
			b.tb.Fatalf("Leave: %v", err)
		}
	}
	if err := members[5].Leave(b.ctx); err != nil { // without a statement
		b.tb.Fatalf("Leave: %v", err)
	}
	b.expect(store, claimFor("a", "p"), stores.InFlight)
	if err := batch.Commit(b.ctx); err != nil {
		b.tb.Fatalf("Commit: %v", err)
	}
	if err := errors.Join(batch.Commit(b.ctx), batch.Rollback(b.ctx)); err != nil {
		b.tb.Errorf("after Commit: %v", err)
	}
	for id, want := range map[string]bool{"a": true, "b": true, "c": true, "failed": false, "unrun": false, "idle": false} {
		if b.decided(store, id) != want {
			b.tb.Errorf("%s: completed is %t, want %t", id, !want, want)
		}
	}

	batch, members = b.beginBatch(batcher, "failed", "unrun")
	b.handled(members[0], "failed")
	b.kept(members[0])
	b.handled(members[1], "unrun")
	if err := batch.Rollback(b.ctx); err != nil {
		b.tb.Errorf("Rollback: %v", err)
	}
	wantErr(b.tb, "Commit after Rollback", batch.Commit(b.ctx), stores.ErrNotCommitted)
	for _, id := range []string{"failed", "unrun"} {
		if b.decided(store, id) {
			b.tb.Errorf("%s is completed", id)
		}
	}
}

func (b *bench) batchUnwon(store stores.Store, batcher stores.Batcher) {
	b.complete(store, claimFor("done", "p"))
	failed := claimFor("failed", "p")
	b.record(store, failureOf(failed))
	alone := store.Capabilities().SingleWriter // or the batch would wait for who has the key
	var held stores.Attempt
	if !alone {
		held = b.win(store, claimFor("held", "p"))
	}
	batch, members := b.beginBatch(batcher, "done", "new", "held", "twin", "failed", "twin")
	for i, won := range []bool{false, true, alone, true, false, false} {
		if won != (members[i] != nil) {
			b.tb.Errorf("claim %d: won is %t", i, members[i] != nil)
		}
	}
	b.handled(members[1], "new")
	b.kept(members[1])
	if err := batch.Commit(b.ctx); err != nil {
		b.tb.Fatalf("Commit: %v", err)
	}
	b.expect(store, claimFor("done", "p"), stores.Duplicate)
	if !alone {
		b.expect(store, claimFor("held", "p"), stores.InFlight)
		b.rollback(held)
	}
	if !b.decided(store, "new") || b.decided(store, "held") || b.decided(store, "twin") {
		b.tb.Error("not what was to be committed")
	}

	batch, members = b.beginBatch(batcher, "done", "new")
	if members[0] != nil || members[1] != nil {
		b.tb.Error("completed messages are won")
	}
	if err := batch.Rollback(b.ctx); err != nil {
		b.tb.Errorf("Rollback: %v", err)
	}
}

func (b *bench) batchSays(store stores.Store, batcher stores.Batcher) {
	outbox, ok := store.(stores.Outbox)
	if !ok {
		return
	}
	batch, members := b.beginBatch(batcher, "first", "failed", "second")
	for i, id := range []string{"first", "failed", "second"} {
		b.handled(members[i], id)
		if err := members[i].Emit(outputsOf(id, id+"/k")); err != nil {
			b.tb.Fatalf("Emit: %v", err)
		}
		if id == "failed" {
			if err := members[i].Leave(b.ctx); err != nil {
				b.tb.Fatalf("Leave: %v", err)
			}
			continue
		}
		b.kept(members[i])
		wantErr(b.tb, "Emit after Keep", members[i].Emit(outputsOf("late")), stores.ErrTxClosed)
	}
	wantErr(b.tb, "Emit of what is none", members[0].Emit([]stores.Output{{}}), stores.ErrTxClosed, stores.ErrInvalidOutput)
	b.waiting(outbox, nil)
	if err := batch.Commit(b.ctx); err != nil {
		b.tb.Fatalf("Commit: %v", err)
	}
	b.waiting(outbox, nil, "first", "first/k", "second", "second/k")
}

// batchActs lets one member of four do something to the transaction, in the two ways in which
// its handler may end, and checks that the others are committed as a whole or not at all, and
// that nobody is completed who has not run.
func (b *bench) batchActs(store stores.Store, name string, act func(ctx context.Context)) {
	b.tb.Helper()
	batcher, _ := store.(stores.Batcher)
	for _, fails := range []bool{false, true} {
		end := name + ", hidden"
		if fails {
			end = name + ", and fails"
		}
		end = end[:min(len(end), 80)]
		ids := []string{end + " before", end + " acts", end + " after", end + " unrun"}
		batch, members := b.beginBatch(batcher, ids...)
		b.handled(members[0], ids[0])
		b.kept(members[0])
		b.handled(members[1], ids[1])
		act(members[1].Context(b.ctx))
		var err error
		if fails {
			err = members[1].Leave(b.ctx)
		} else {
			err = members[1].Keep(b.ctx)
		}
		kept, lost := err == nil && !fails, errors.Is(err, stores.ErrBatchLost)
		if !lost { // or what is wrong with the connection is noticed by the next one
			if b.h.Write(members[2].Context(b.ctx), Effect{Key: ids[2], Label: "first", Run: 1}) == nil {
				b.kept(members[2])
			} else if err = members[2].Leave(b.ctx); !errors.Is(err, stores.ErrBatchLost) {
				b.tb.Errorf("%s: Leave = %v", ids[2], err)
			} else {
				lost = true
			}
		}
		if err = stores.ErrBatchLost; !lost {
			err = batch.Commit(b.ctx)
		}
		if rollback := batch.Rollback(b.ctx); rollback != nil && !lost {
			b.tb.Errorf("%s: Rollback: %v", end, rollback)
		}
		committed := err == nil
		for i, want := range []bool{committed, committed && kept, committed, false} {
			if got := b.decided(store, ids[i]); got != want {
				b.tb.Errorf("%s: completed is %t; Commit: %v", ids[i], got, err)
			}
		}
	}
}
