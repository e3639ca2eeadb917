package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// twoOperators: each message is changed by one of them.
func twoOperators(b *bench) {
	const messages = 60
	open := []stores.Store{b.open(), b.open()}
	for i := range messages {
		b.fails(open[0], fmt.Sprint("message ", i), settledFor)
	}
	var sum atomic.Int64
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			c := stores.Change{Verb: stores.VerbRetry, Filter: stores.Filter{Status: []stores.Status{stores.StatusFailed}}, Actor: fmt.Sprint("operator ", i), Limit: 7}
			poll(b.ctx, patience, func() bool {
				var got stores.Changed
				err := b.retry(func() (err error) {
					got, err = open[i%len(open)].Change(b.ctx, c)
					return err
				})
				if err != nil {
					b.tb.Errorf("Change: %v", err)
				}
				sum.Add(int64(got.Changed))
				c.After = got.Next
				if got.Done {
					c.After = 0 // what another one had in hand may be left
				}
				return err != nil || sum.Load() >= messages
			})
		})
	}
	group.Wait()
	if n := sum.Load(); n != messages {
		b.tb.Errorf("%d messages were changed, want %d", n, messages)
	}
	for _, f := range b.failures() {
		if f.redrives != 1 || f.state.Status != stores.StatusPending {
			b.tb.Errorf("%q was tried again %d times, and is %s", f.key.ID, f.redrives, f.state.Status)
		}
	}
	if all, err := open[0].Audit(b.ctx, 0, 1000); err != nil || len(all) != messages {
		b.tb.Errorf("the audit has %d entries, %v, want %d", len(all), err, messages)
	}
	b.paired()
}

// redriveRace: while an operator has failed messages tried again, the broker delivers
// them. Each runs once.
func redriveRace(b *bench) {
	const messages = 12
	open := []stores.Store{b.open(), b.open()}
	r := race{b: b, shared: sharedBy(open)}
	names := make([]string, messages)
	for i := range names {
		names[i] = fmt.Sprint("message ", i)
		b.fails(open[0], names[i], redelivered, settledFor)
	}
	var left atomic.Int64
	left.Store(messages)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, name := range names {
				if r.redeliver(open[i%len(open)], claimFor(name, name), i) {
					left.Add(-1)
				}
			}
		})
	}
	for i := range 2 {
		group.Go(func() {
			poll(b.ctx, patience, func() bool {
				err := b.retry(func() error {
					_, err := open[i].Change(b.ctx, stores.Change{Verb: stores.VerbRetry, Actor: actor, Limit: 5, Filter: stores.Filter{}})
					return err
				})
				if err != nil {
					b.tb.Errorf("Change: %v", err)
				}
				return err != nil || left.Load() == 0
			})
		})
	}
	group.Wait()
	if n := left.Load(); n != 0 {
		b.tb.Errorf("%d of %d messages were committed, want each once", messages-n, messages)
	}
	b.settledOnce(names)
	b.paired()
}

// redeliver delivers a message until it is completed, by this delivery or another, and
// reports whether by this one.
func (r *race) redeliver(store stores.Store, claim stores.Claim, run int) (completed bool) {
	settled := poll(r.b.ctx, patience, func() bool {
		attempt, v, err := store.Begin(r.b.ctx, claim)
		switch {
		case errors.Is(err, stores.ErrUnavailable), err == nil && (v.Outcome == stores.InFlight || v.Outcome == stores.Final || v.Outcome == stores.Deferred):
			return false // not yet tried again
		case err != nil || v.Outcome != stores.Claimed && v.Outcome != stores.Duplicate:
			r.b.tb.Errorf("Begin(%s) = %s, %v", claim.Key, v.Outcome, err)
			return true
		case v.Outcome == stores.Duplicate:
			return true
		}
		completed = r.attempt(attempt, string(claim.Key.ID), run, func() bool { return false })
		return completed
	})
	if !settled {
		r.b.tb.Errorf("%s is not settled after %s", claim.Key, patience)
	}
	return completed
}
