package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

const racers = 64

func raceChecks() []check {
	return []check{
		{name: "many deliveries of one key", run: func(b *bench) { stampede(b, b.open()) }},
		{name: "many deliveries of one key in two processes", run: func(b *bench) { stampede(b, b.open(), b.open()) }},
		{name: "many keys, some rolled back", run: func(b *bench) { torture(b, b.open()) }},
		{name: "many keys, some rolled back, in two processes", run: func(b *bench) { torture(b, b.open(), b.open()) }},
		{name: "under a stricter isolation", run: strictIsolation},
		{name: "many deliveries of one message through the inbox", run: inboxStampede},
		{name: "different messages under one id", run: conflictRace},
	}
}

// race is what goroutines that deliver the same keys have in common.
type race struct {
	b       *bench
	shared  bool     // claims are not exclusive
	holders sync.Map // of a key, to a count
	waited  atomic.Int64
}

// deliver asks for the key until it is completed, by this delivery or by another,
// and reports whether by this one. rollback says whether an attempt is given up.
func (r *race) deliver(store stores.Store, claim stores.Claim, run int, rollback func() bool) (completed bool) {
	settled := poll(r.b.ctx, checkTimeout, func() bool {
		attempt, verdict, err := store.Begin(r.b.ctx, claim)
		held := verdict.Outcome == stores.InFlight || claim.Take != 0 && verdict.Outcome == stores.Parked
		switch {
		case errors.Is(err, stores.ErrUnavailable) && r.b.ctx.Err() == nil, err == nil && held:
			r.waited.Add(1)
			return false
		case err == nil && verdict.Outcome == stores.Duplicate:
			return true
		case attempt == nil || verdict.Outcome != stores.Claimed:
			r.b.tb.Errorf("Begin(%s) = %s, %v", claim.Key, verdict.Outcome, err)
			return true
		}
		completed = r.attempt(attempt, string(claim.Key.ID), run, rollback)
		return completed
	})
	if !settled {
		r.b.tb.Errorf("%s is not settled after %s", claim.Key, checkTimeout)
	}
	return completed
}

// attempt runs an honest handler, alone on its key, and reports whether its effects
// are committed. Under a strict isolation they may not be.
func (r *race) attempt(attempt stores.Attempt, key string, run int, rollback func() bool) bool {
	counter, _ := r.holders.LoadOrStore(key, new(atomic.Int64))
	holders := counter.(*atomic.Int64)
	if n := holders.Add(1); n != 1 && !r.shared {
		r.b.tb.Errorf("%d attempts hold %s at once", n, key)
	}
	ctx := attempt.Context(r.b.ctx)
	err := errors.Join(
		r.b.h.Write(ctx, Effect{Key: key, Label: "first", Run: run}),
		r.b.h.Write(ctx, Effect{Key: key, Label: "second", Run: run}),
	)
	if err != nil && !r.b.strict {
		r.b.tb.Errorf("Write: %v", err)
	}
	giveUp := err != nil || rollback()
	holders.Add(-1) // before the end: the next holder may be there when it returns
	if giveUp {
		if err := attempt.Rollback(r.b.ctx); err != nil {
			r.b.tb.Errorf("Rollback: %v", err)
		}
		return false
	}
	err = attempt.Commit(r.b.ctx)
	if err != nil && !((r.b.strict || r.shared) && errors.Is(err, stores.ErrNotCommitted)) {
		r.b.tb.Errorf("Commit: %v", err)
	}
	return err == nil
}

// settledOnce fails unless each key has one row and both effects once.
func (b *bench) settledOnce(keys []string) {
	b.tb.Helper()
	effects := make(map[string]map[string]int)
	runs := make(map[string]map[int]bool)
	for _, e := range b.allEffects() {
		if effects[e.Key] == nil {
			effects[e.Key], runs[e.Key] = make(map[string]int), make(map[int]bool)
		}
		effects[e.Key][e.Label]++
		runs[e.Key][e.Run] = true
	}
	rows := make(map[string]int)
	for _, r := range b.rows() {
		if r.completed {
			rows[string(r.id)]++
		}
	}
	for _, key := range keys {
		if effects[key]["first"] != 1 || effects[key]["second"] != 1 || len(runs[key]) != 1 {
			b.tb.Errorf("%s has effects %v of runs %v, want each once, of one run", key, effects[key], runs[key])
		}
		if rows[key] != 1 {
			b.tb.Errorf("%s has %d completed rows, want one", key, rows[key])
		}
	}
	if len(effects) != len(keys) || len(rows) != len(keys) {
		b.tb.Errorf("%d keys left effects of %d and rows of %d", len(keys), len(effects), len(rows))
	}
}

func stampede(b *bench, open ...stores.Store) {
	r := race{b: b, shared: sharedBy(open)}
	claim := claimFor("stampede", "payload")
	var completed atomic.Int64
	var group sync.WaitGroup
	for i := range racers {
		group.Go(func() {
			hold := func() bool {
				// Others have to be turned away meanwhile.
				poll(b.ctx, time.Second, func() bool { return r.waited.Load() >= racers/4 })
				return false
			}
			if r.deliver(open[i%len(open)], claim, i, hold) {
				completed.Add(1)
			}
		})
	}
	group.Wait()
	if n := completed.Load(); n != 1 {
		b.tb.Errorf("%d of %d deliveries of one key were committed, want one", n, racers)
	}
	b.tb.Logf("%d deliveries of one key: turned away %d times", racers, r.waited.Load())
	b.settledOnce([]string{"stampede"})
}

func torture(b *bench, open ...stores.Store) {
	const (
		keys       = 40
		rolledBack = 0.3
	)
	seed := rand.Uint64()
	r := race{b: b, shared: sharedBy(open)}
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprint("key ", i)
	}
	begun := time.Now()
	var completed, given atomic.Int64
	var group sync.WaitGroup
	for i := range racers {
		group.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			for _, k := range random.Perm(keys) {
				rollback := func() bool {
					if random.Float64() >= rolledBack {
						return false
					}
					given.Add(1)
					return true
				}
				if r.deliver(open[i%len(open)], claimFor(names[k], names[k]), i, rollback) {
					completed.Add(1)
				}
			}
		})
	}
	group.Wait()
	b.tb.Logf("seed %d: %d deliveries of %d keys by %d goroutines: %d committed, %d rolled back, turned away %d times, in %s",
		seed, keys*racers, keys, racers, completed.Load(), given.Load(), r.waited.Load(), time.Since(begun).Round(time.Millisecond))
	if n := completed.Load(); n != keys {
		b.tb.Errorf("%d keys were committed %d times", keys, n)
	}
	b.settledOnce(names)
}

func strictIsolation(b *bench) {
	if b.db.StrictIsolation == nil {
		b.tb.Logf("not checked: the harness has no StrictIsolation")
		return
	}
	b.open() // migrated under the usual one
	b.db.StrictIsolation(b.tb)
	b.strict = true
	torture(b, b.open(), b.open())
}

// inboxStampede delivers one message many times at once: one delivery runs, the
// others are held and then find a duplicate.
func inboxStampede(b *bench) {
	var runs, inside atomic.Int64
	open := []stores.Store{b.open(), b.open()}
	shared := sharedBy(open)
	handler := b.handler(func(ctx context.Context, _ *message.Message) error {
		runs.Add(1)
		if n := inside.Add(1); n != 1 && !shared {
			b.tb.Errorf("%d handlers run for one message at once", n)
		}
		err := errors.Join(
			b.h.Write(ctx, Effect{Key: "inbox stampede", Label: "first", Run: 1}),
			b.h.Write(ctx, Effect{Key: "inbox stampede", Label: "second", Run: 1}))
		inside.Add(-1)
		return err
	})
	msg := message.NewMessage("inbox stampede", []byte("payload"))
	here, elsewhere := b.service(open[0]), b.service(open[1])
	var acked atomic.Int64
	var group sync.WaitGroup
	for i := range racers {
		in := here
		if i%2 == 1 {
			in = elsewhere
		}
		group.Go(func() {
			a := b.deliver(in.Middleware(handler), msg)
			if a.acked {
				acked.Add(1)
				return
			}
			b.tb.Errorf("a delivery was given back: %v", a.err)
		})
	}
	group.Wait()
	if runs.Load() != 1 && !shared || acked.Load() != racers {
		b.tb.Errorf("%d deliveries: the handler ran %d times and %d were acked, want once and all", racers, runs.Load(), acked.Load())
	}
	if got := b.effects("inbox stampede"); len(got) != 2 {
		b.tb.Errorf("effects %v are committed, want both once", got)
	}
}

// conflictRace delivers two messages under one id at once: one runs, the other is
// kept, whichever comes first.
func conflictRace(b *bench) {
	in := b.service(b.open())
	for n := range 10 {
		id := fmt.Sprint("conflict race ", n)
		var group sync.WaitGroup
		for _, payload := range []string{"one", "other", "one", "other"} {
			group.Go(func() {
				msg := message.NewMessage(id, []byte(payload))
				if a := b.deliver(in.Middleware(b.effect(id)), msg); !a.acked {
					b.tb.Errorf("a delivery was given back: %v", a.err)
				}
			})
		}
		group.Wait()
		kept := b.quarantinedAs(messageKey(b.tb, message.NewMessage(id, nil)))
		if effects := b.effects(id); len(effects) != 1 || len(kept) != 1 || kept[0].Seen != 2 {
			b.tb.Errorf("two messages under one id, delivered twice each: effects %v, kept %+v, want one effect and one message seen twice", effects, kept)
		}
	}
}

// sharedBy reports whether several processes may claim a message on these stores.
func sharedBy(open []stores.Store) bool { return len(open) > 1 && open[0].Capabilities().ClaimsShared }
