package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// changeResolve: what was done by hand is completed, whatever had become of it.
func changeResolve(b *bench) {
	here, elsewhere := b.open(), b.open()
	version := b.fails(here, "pending")
	b.fails(here, "failed", settledFor)
	b.fails(here, "discarded")
	b.fails(here, "left alone")
	b.change(here, stores.VerbDiscard, stores.Filter{ID: []byte("discarded")}, 1)
	b.change(elsewhere, stores.VerbResolve, stores.Filter{ID: []byte("discarded")}, 0) // not among pending and failed
	b.change(elsewhere, stores.VerbResolve, stores.Filter{ID: []byte("discarded"), Status: []stores.Status{stores.StatusDiscarded}}, 1)
	for _, id := range []string{"pending", "failed"} {
		b.change(elsewhere, stores.VerbResolve, stores.Filter{ID: []byte(id)}, 1)
		b.change(elsewhere, stores.VerbResolve, stores.Filter{ID: []byte(id)}, 0) // once is enough
	}
	b.paired()
	b.wantDue(here, "left alone")
	for _, id := range []string{"pending", "failed", "discarded"} {
		c := claimFor(id, id)
		b.expect(here, c, stores.Duplicate)
		b.expect(here, claimFor(id, "other"), stores.Conflict)
		c.Take = version
		b.expect(here, c, stores.Duplicate)
		m, err := elsewhere.Find(b.ctx, c.Key)
		if err != nil || m.Status != stores.StatusCompleted || time.Since(m.CompletedAt).Abs() > time.Hour {
			b.tb.Errorf("a resolved message is %+v, %v", m, err)
		}
		late := failureOf(c)
		late.Version = version
		b.refuses(here, late, false, "a failure of what is resolved")
	}
	all, err := here.Audit(b.ctx, 0, 10)
	if err != nil || len(all) != 4 {
		b.tb.Fatalf("Audit = %+v, %v, want 4 entries", all, err)
	}
	for i, before := range []string{"failed", "pending", "discarded"} {
		if e := all[i]; e.Verb != stores.VerbResolve || e.Before != before || e.After != "completed" || e.Actor != actor || e.Reason != reason || e.Number == 0 {
			b.tb.Errorf("entry %d is %+v, want %s resolved", i, e, before)
		}
	}
}

func resolveInOrder(b *bench) {
	here := b.open()
	if here.Capabilities().Unordered {
		return
	}
	order := func(f *stores.Failure) { f.OrderKey, f.DueIn, f.OrderWait = []byte("order"), later, later }
	b.fails(here, "first", order)
	b.fails(here, "second", order)
	b.wantDue(here)
	b.change(here, stores.VerbResolve, stores.Filter{ID: []byte("first")}, 1)
	r := b.wantDue(here, "second")[0]
	b.commit(b.take(here, claimOf(r), r.State.Version))
}

// resolveRace: either the holder completes a message, with what it writes, or the operator
// does.
func resolveRace(b *bench) {
	const messages = 24
	here, leases := b.leasing()
	operator := b.open()
	held := make([]stores.HeldLease, messages)
	for i := range held {
		c := claimFor(fmt.Sprint("message ", i), "payload")
		held[i] = stores.HeldLease{Key: c.Key, Version: b.record(here, leaseOf(c, 0, "here/1", time.Hour)), Holder: "here/1"}
		b.stepDone(leases, held[i], "step", "1")
	}
	var (
		both                sync.WaitGroup
		completed, resolved atomic.Int64
	)
	both.Go(func() {
		for i, l := range held {
			poll(b.ctx, patience, func() bool {
				done, ended := b.completeHeld(here, l, i)
				if done {
					completed.Add(1)
				}
				return ended
			})
		}
	})
	both.Go(func() {
		for i := range held {
			id := held[len(held)-1-i].Key.ID
			err := b.retry(func() error {
				got, err := operator.Change(b.ctx, stores.Change{Verb: stores.VerbResolve, Filter: stores.Filter{ID: id}, Break: true, Actor: actor, Limit: 1})
				resolved.Add(int64(got.Changed))
				return err
			})
			if err != nil {
				b.tb.Errorf("Change: %v", err)
			}
		}
	})
	both.Wait()
	written := 0
	for _, l := range held {
		written += len(b.effects(string(l.Key.ID)))
		if !b.completed(l.Key) {
			b.tb.Errorf("%s is not completed", l.Key)
		}
		b.stepsAre(l.Key, "completed")
	}
	if n := completed.Load() + resolved.Load(); n != messages || int64(written) != completed.Load() || len(b.failures()) > 0 {
		b.tb.Errorf("of %d messages %d were completed and %d resolved; %d effects, %d failures", messages, completed.Load(), resolved.Load(), written, len(b.failures()))
	}
	if all, err := operator.Audit(b.ctx, 0, 100); err != nil || int64(len(all)) != resolved.Load() {
		b.tb.Errorf("the audit has %d entries, %v, want %d", len(all), err, resolved.Load())
	}
}

// completeHeld completes a leased message with an effect, as its holder. It reports whether
// it has, and whether the message is completed by now, or the check has failed.
func (b *bench) completeHeld(store stores.Store, l stores.HeldLease, run int) (done, ended bool) {
	c := claimFor(string(l.Key.ID), "payload")
	c.Take = l.Version
	attempt, v, err := store.Begin(b.ctx, c)
	switch {
	case errors.Is(err, stores.ErrUnavailable) || err == nil && v.Outcome == stores.InFlight:
		return false, false
	case err == nil && v.Outcome == stores.Duplicate:
		return false, true
	case err != nil || v.Outcome != stores.Claimed:
		b.tb.Errorf("Begin(%s) = %s, %v", c.Key, v.Outcome, err)
		return false, true
	}
	b.write(attempt, Effect{Key: string(l.Key.ID), Label: "first", Run: run})
	err = attempt.Commit(b.ctx)
	if errors.Is(err, stores.ErrNotCommitted) && store.Capabilities().ClaimsShared {
		return false, false // the operator came between: the next claim says so
	}
	if err != nil {
		b.tb.Errorf("Commit(%s): %v", c.Key, err)
	}
	return err == nil, true
}
