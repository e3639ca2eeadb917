package crash

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

// Variants that do something wrong with leases.

// leaseVariants are added to the others, which are told of in the same way.
var leaseVariants = map[string]variant{
	"token unchecked": {
		rule: "a completion names the token", system: servers, find: []string{"I4"}, stopAt: []string{pointHandlerEnd, pointCommitStart},
		store: func(b *backend) middleware.Store { return tokenUnchecked{watchedIn(b)} },
	},
	"item unchecked": {
		rule: "a completion names the item as its lease has left it", system: []string{"dynamodb"}, find: []string{"I1", "I4"},
		stopAt: []string{pointHandlerEnd, pointCommitStart},
		store: func(b *backend) middleware.Store {
			b.service.change = unconditional
			return watchedIn(b)
		},
	},
	"lease by the local clock": {
		rule: "a lease expires by the database's clock", find: []string{"I4", "rule 12"},
		store: func(b *backend) middleware.Store { return localLease{watchedIn(b), b.worker} },
	},
	"heartbeat after the deadline": {
		rule: "heartbeats end with the handler's deadline", find: []string{"rule 20"}, with: []conduct{hangs},
		store: func(b *backend) middleware.Store { return endless{watchedIn(b)} },
	},
	"late failure": {
		rule: "the record of a failure names the token", find: []string{"I4"}, stopAt: []string{pointEffect, pointEffectEnd},
		store: func(b *backend) middleware.Store { return lateFailure{watchedIn(b)} },
	},
	"run again silently": {
		rule: "AfterCrash: stop", find: []string{"I4"},
		config: func(c *middleware.InboxConfig) { c.LeaseByHandler[consumers[1]] = c.LeaseByHandler[consumers[0]] },
	},
}

func init() { maps.Copy(variants, leaseVariants) } // workers look there

func watchedIn(b *backend) *watchedStore { return b.store.(*watchedStore) } //nolint:forcetypeassert // it always is

// tokenUnchecked completes with whatever lease there is.
type tokenUnchecked struct{ *watchedStore }

func (s tokenUnchecked) Begin(ctx context.Context, c stores.Claim) (stores.Attempt, stores.Verdict, error) {
	attempt, verdict, err := s.watchedStore.Begin(ctx, c)
	if c.Take == 0 || attempt != nil || err != nil {
		return attempt, verdict, err
	}
	if seen, err := s.Look(ctx, c.Key, c.Fingerprint); err == nil && seen.Failure.Version != 0 {
		c.Take = seen.Failure.Version
		return s.watchedStore.Begin(ctx, c)
	}
	return attempt, verdict, err
}

// localLease writes down by the local clock when a lease expires. That of the workers are
// days apart.
type localLease struct {
	*watchedStore
	worker int
}

func (s localLease) expires(d time.Duration) time.Duration {
	const day = 24 * time.Hour
	return max(time.Millisecond, d+time.Duration(s.worker-1)*day)
}

func (s localLease) Record(ctx context.Context, f stores.Failure) (int64, error) {
	if f.Start {
		f.DueIn, f.Placement = s.expires(f.DueIn), stores.PlacementRedelivered
	}
	return s.watchedStore.Record(ctx, f)
}

func (s localLease) Extend(ctx context.Context, l stores.HeldLease, d time.Duration) error {
	return s.watchedStore.Extend(ctx, l, s.expires(d))
}

// endless renews a lease until it is lost.
type endless struct{ *watchedStore }

func (s endless) Record(ctx context.Context, f stores.Failure) (int64, error) {
	version, err := s.watchedStore.Record(ctx, f)
	if err == nil && f.Start {
		go func() {
			ctx := context.WithoutCancel(ctx)
			for pause.Sleep(ctx, f.DueIn/3) && s.Extend(ctx, stores.HeldLease{Key: f.Key, Version: version, Holder: f.Holder}, f.DueIn) == nil {
			}
		}()
	}
	return version, err
}

// lateFailure records a failure whoever has the lease meanwhile.
type lateFailure struct{ *watchedStore }

// Look tells the holder what it had.
func (s lateFailure) Look(ctx context.Context, k stores.Key, f stores.Fingerprint) (stores.Verdict, error) {
	verdict, err := s.watchedStore.Look(ctx, k, f)
	if token := storyOf(ctx).token(); token != 0 && verdict.Failure.Presumed {
		verdict.Failure.Version = token
	}
	return verdict, err
}

func (s lateFailure) Record(ctx context.Context, f stores.Failure) (int64, error) {
	version, err := s.watchedStore.Record(ctx, f)
	if f.Start || f.Lapsed || !errors.Is(err, stores.ErrChanged) {
		return version, err
	}
	seen, looked := s.watchedStore.Look(ctx, f.Key, f.Fingerprint)
	if looked != nil || seen.Failure.Version == 0 {
		return version, err
	}
	f.Version = seen.Failure.Version
	return s.watchedStore.Record(ctx, f)
}

// TestLeaseVariantsAreFound breaks one rule about leases at a time.
func TestLeaseVariantsAreFound(t *testing.T) {
	t.Parallel()
	t.Run("all rules kept", func(t *testing.T) {
		t.Parallel()
		on(t, today(t, 1, leaseVariantSystems(t, "")), func(t *testing.T, open opener) {
			tr := leaseVariantTrial(open(t), seedOf(t), "") // what the variants are is added to it
			for _, v := range leaseVariants {
				tr.orders = planted(tr.orders, 1, tr.system.can(v.with...)...)
				for _, point := range v.stopAt {
					tr.Kills = append(tr.Kills, tr.Leases.longer([]fleet.Kill{{Kind: fleet.SIGSTOP, Point: point, Hit: 3}})...)
				}
			}
			tr.limit = 4 * time.Minute
			r := tr.run(t)
			r.must(t)
			t.Log(r.summary(), r.leaseSummary())
		})
	})
	for _, name := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(leaseVariants))...) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, todayEvery(t, len(leaseVariants), 1, leaseVariantSystems(t, name)), func(t *testing.T, open opener) {
				v := variants[name]
				for try := range variantTries {
					r := leaseVariantTrial(open(t), seedOf(t)+uint64(try), name).longer(try).run(t)
					t.Logf("%s %s\nfound %v", r.summary(), r.leaseSummary(), r.invariants())
					if slices.ContainsFunc(v.find, func(i string) bool { return slices.Contains(r.invariants(), i) }) {
						return
					}
				}
				t.Errorf("the rule %q was broken and nobody noticed; want a violation of one of %v", v.rule, v.find)
			})
		})
	}
}

// leaseVariantSystems are those where a stopped process does not keep the others from writing.
func leaseVariantSystems(t *testing.T, name string) map[string]opener {
	t.Helper()
	systems := map[string]opener{"postgres": newPostgres, "mariadb": newMariaDB, "dynamodb": newDynamoDB}
	if rotation.Kills(t) > 0 {
		systems["mysql"], systems["postgres+sql"], systems["lib/pq"], systems["pgbouncer"] = newProxiedMySQL, newSQLDB, newPQ, newPooledPostgres
	}
	maps.DeleteFunc(systems, func(system string, _ opener) bool { return !variants[name].on(system) })
	return systems
}

// leaseVariantTrial stops some holders for longer than their leases live, with others waiting,
// and kills some.
func leaseVariantTrial(s *system, seed uint64, variant string) *trial {
	v := variants[variant]
	tr := leaseTrial(s, seed, 0)
	tr.orders = planted(workload(seed, 10, mix{share: map[conduct]int{slow: 80}}), 1, append([]conduct{once}, s.can(v.with...)...)...)
	tr.Variant, tr.limit = variant, 20*time.Second
	tr.Leases.LoseReplies, tr.Leases.Stop = 0, v.stopAt == nil
	tr.Config = fleet.Config{Seed: seed, Workers: 3, InFlight: 2, Visibility: 100 * time.Millisecond}
	tr.Kills = []fleet.Kill{{Kind: fleet.SIGKILL, Point: pointEffect, Hit: 4}, {Kind: fleet.SIGKILL, Point: pointEffect, Hit: 9}}
	for _, point := range v.stopAt {
		for hit := 2; hit <= 8; hit += 2 {
			tr.Kills = append(tr.Kills, fleet.Kill{Kind: fleet.SIGSTOP, Point: point, Hit: hit})
		}
	}
	tr.Kills = tr.Leases.longer(tr.Kills)
	return tr
}
