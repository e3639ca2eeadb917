package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

func leaseChecks(h *Harness) []check {
	if h.Transact == nil {
		return nil
	}
	return []check{
		{name: "one owner at a time", run: func(b *bench) { b.leaseOwners() }},
		{name: "they expire by the database's clock", run: func(b *bench) { b.leaseExpires() }},
		{name: "many ask at once", run: func(b *bench) { b.leaseCrowd() }},
	}
}

func (b *bench) lease(l stores.Leases, name, owner string, limit int, ttl time.Duration, units ...int64) stores.Leased {
	b.tb.Helper()
	leased, err := l.Lease(b.ctx, stores.LeaseRequest{Name: name, Owner: owner, Units: units, Limit: limit, TTL: ttl})
	if err != nil {
		b.tb.Fatalf("Lease: %v", err)
	}
	slices.Sort(leased.Units)
	return leased
}

func (b *bench) has(what string, leased stores.Leased, live int, units ...int64) {
	b.tb.Helper()
	if !slices.Equal(leased.Units, units) || leased.Live != live {
		b.tb.Errorf("%s: %+v, want the units %v and %d that live", what, leased, units, live)
	}
}

func (b *bench) leaseOwners() {
	_, l := b.openOutbox()
	_, elsewhere := b.openOutbox()
	b.has("the first takes two", b.lease(l, "n", "a", 2, time.Minute, 5, 1, 3), 2, 1, 5)
	b.has("another takes what is free", b.lease(elsewhere, "n", "b", 9, time.Minute, 1, 3, 5), 3, 3)
	b.has("another name", b.lease(elsewhere, "m", "b", 9, time.Minute, 1), 1, 1)
	b.has("renewed, with no more than it has", b.lease(l, "n", "a", 1, time.Minute, 1, 3, 5), 3, 1, 5)
	for _, owner := range []string{"b", "A", "a "} {
		if err := l.Unlease(b.ctx, "n", owner, []int64{1, 5}); err != nil {
			b.tb.Fatal(err)
		}
	}
	b.has("nobody else has ended them", b.lease(l, "n", "a", 9, time.Minute, 1, 3, 5), 3, 1, 5)
	if err := l.Unlease(b.ctx, "n", "a", []int64{5, 77}); err != nil {
		b.tb.Fatal(err)
	}
	b.has("what was given back is free", b.lease(elsewhere, "n", "b", 9, time.Minute, 1, 3, 5), 3, 3, 5)
}

func (b *bench) leaseExpires() {
	_, l := b.openOutbox()
	const ttl = 400 * time.Millisecond
	begun := time.Now()
	b.has("taken", b.lease(l, "n", "a", 9, ttl, 1, 2), 2, 1, 2)
	for {
		asked := time.Now()
		leased := b.lease(l, "n", "b", 9, time.Minute, 1)
		if len(leased.Units) == 1 {
			if waited := time.Since(begun); waited < ttl-50*time.Millisecond { // SQLite's clock has milliseconds
				b.tb.Errorf("taken after %v", waited)
			}
			break
		}
		if asked.Sub(begun) > patience {
			b.tb.Fatal("it never expires")
		}
		<-time.After(20 * time.Millisecond)
	}
	b.has("what nobody else has taken is its owner's again", b.lease(l, "n", "a", 9, time.Minute, 1, 2), 2, 2)
}

// leaseCrowd lets many ask for the units of a name that nobody has asked for before.
func (b *bench) leaseCrowd() {
	_, l := b.openOutbox()
	for _, name := range []string{"n", "o", "p", "q"} {
		b.leaseCrowdOf(l, name)
	}
}

func (b *bench) leaseCrowdOf(l stores.Leases, name string) {
	var (
		crowd sync.WaitGroup
		mu    sync.Mutex
		had   = make(map[int64]string)
	)
	for _, owner := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		crowd.Go(func() {
			for range 3 {
				leased, err := l.Lease(b.ctx, stores.LeaseRequest{Name: name, Owner: owner, Units: allBuckets(), Limit: 8, TTL: time.Minute})
				mu.Lock()
				if err != nil {
					b.tb.Errorf("%s: %v", owner, err)
				}
				for _, unit := range leased.Units {
					if had[unit] != "" && had[unit] != owner {
						b.tb.Errorf("unit %d is %s's and %s's", unit, had[unit], owner)
					}
					had[unit] = owner
				}
				mu.Unlock()
			}
		})
	}
	crowd.Wait()
	if len(had) != stores.OutboxBuckets {
		b.tb.Errorf("%d units have an owner", len(had))
	}
}
