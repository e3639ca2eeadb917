package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
)

// leases lets the handlers run under leases. The first consumer's is run again after a crash.
type leases struct {
	TTL  time.Duration
	Stop bool          // the second consumer's is not
	Hang time.Duration // of a handler that heeds nothing

	// LoseReplies is the chance that a worker does not learn what has become of a claim, a
	// renewal, a completion's claim or a record. What becomes of COMMITs is the network's.
	LoseReplies float64
	Seed        uint64
}

func (l leases) on() bool { return l.TTL > 0 }

// stops reports whether the consumer's messages are not run again whose effect may have happened.
func (l leases) stops(consumer string) bool { return l.Stop && consumer == consumers[1] }

// configure returns what handlers publish to.
func (l leases) configure(c *middleware.InboxConfig) message.Publisher {
	c.LeaseByHandler = make(map[string]middleware.LeaseConfig)
	for _, consumer := range consumers {
		lease := middleware.LeaseConfig{TTL: l.TTL, AfterCrash: middleware.CrashRetry}
		if l.stops(consumer) {
			lease.AfterCrash = middleware.CrashStop
		}
		c.LeaseByHandler[consumer] = lease
	}
	c.Outputs = &middleware.Outputs{}
	return outbox.Publisher("shop")
}

// lost is what a worker learns of a question that the store has answered.
func (w *watchedStore) lost() error {
	nth := w.asked.Add(1)
	rng := rand.New(rand.NewPCG(w.leases.Seed, nth<<16+uint64(w.recorder.worker.Index)<<8+uint64(w.recorder.worker.Start)))
	if rng.Float64() >= w.leases.LoseReplies {
		return nil
	}
	return fmt.Errorf("%w: the reply was lost", stores.ErrUnavailable)
}

// holds writes down that a lease was granted.
func (w *watchedStore) holds(ctx context.Context, token int64, asked time.Time) {
	if lease := storyOf(ctx).lease; lease != nil && w.leases.on() && lease.Swap(token) != token {
		w.recorder.say(ctx, saidLeased, asked.UnixNano())
	}
}

// Extend implements stores.LeaseInbox.
func (w *watchedStore) Extend(ctx context.Context, l stores.HeldLease, d time.Duration) error {
	asked := time.Now()
	err := w.journal.Extend(ctx, l, d)
	if err != nil {
		w.recorder.say(ctx, "lease not renewed:", err)
		return err
	}
	w.holds(ctx, l.Version, asked) // the reply to its claim may have been lost
	w.recorder.say(ctx, saidRenewed, asked.UnixNano())
	w.recorder.at(ctx, pointRenewed)
	return w.lost()
}

// RecordStep implements stores.LeaseInbox.
func (w *watchedStore) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	w.recorder.say(ctx, saidSteps, nil)
	if err := w.journal.RecordStep(ctx, l, step); err != nil {
		w.recorder.say(ctx, "step not recorded:", err)
		return err
	}
	w.recorder.say(ctx, saidStepped, nil)
	w.recorder.at(ctx, pointStep)
	return w.lost()
}

// Steps implements stores.LeaseInbox.
func (w *watchedStore) Steps(ctx context.Context, l stores.HeldLease) ([]stores.Step, error) {
	return w.journal.Steps(ctx, l)
}

// leased is the handler of a consumer under a lease. The effect is outside, and what it writes
// is in the completion.
func (s *shop) leased(b *backend, consumer string) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		nth, err := s.count("runs-"+consumer, string(msg.Payload))
		if err != nil {
			return nil, err
		}
		s.recorder.sayFacts(msg)
		if err := s.pay(ctx, msg, nth); err != nil {
			return nil, err
		}
		output := message.NewMessage("", []byte(consumer+" "+msg.UUID))
		return message.Messages{output}, middleware.OnComplete(ctx, func(ctx context.Context) error {
			tx, ok := b.find(ctx)
			if !ok {
				return stores.ErrNoTx
			}
			return s.apply(ctx, tx, consumer, msg, nth)
		})
	}
}

// pay is the handler without its writes. Of half of the messages it is a step, which is not
// made again once it is on record.
func (s *shop) pay(ctx context.Context, msg *message.Message, nth int64) (err error) {
	if stepped(msg.UUID) {
		_, err = middleware.Once(ctx, "pay", func(ctx context.Context) (int64, error) { return nth, s.charge(ctx, msg, nth) })
	} else {
		err = s.charge(ctx, msg, nth)
	}
	if err != nil {
		return err
	}
	return s.behave(ctx, nil, inEffect(conductOf(msg.UUID)), nth)
}

func stepped(id string) bool { return item(id)%2 == 0 }

// charge is the effect. Who makes it is outside of the database, and writes down by which key
// he was asked; the history knows of each request by its lease.
func (s *shop) charge(ctx context.Context, msg *message.Message, nth int64) error {
	idempotencyKey, ok := middleware.IdempotencyKey(ctx)
	if !ok {
		return errors.New("there is no idempotency key")
	}
	s.recorder.say(ctx, saidAsked, idempotencyKey)
	s.recorder.at(ctx, pointEffect)
	switch c := conductOf(msg.UUID); {
	case c == slow:
		pause.Sleep(ctx, s.Leases.TTL*3/2)
	case c == hangs && nth == 1:
		pause.Sleep(context.WithoutCancel(ctx), s.Leases.Hang)
	default:
		pause.Sleep(ctx, 5*time.Millisecond)
	}
	s.recorder.say(ctx, saidPaid, idempotencyKey)
	s.recorder.at(ctx, pointEffectEnd)
	return context.Cause(ctx)
}

// inWrites is the conduct of what is run in the transaction of the completion.
func inWrites(c conduct) conduct {
	if slices.Contains(dishonest, c) && c != reenters || slices.Contains([]conduct{batched, unwritten}, c) {
		return c
	}
	return honest
}

// inEffect is the conduct of the rest.
func inEffect(c conduct) conduct {
	if inWrites(c) == c || c == slow {
		return honest
	}
	return c
}

// The points of a message under a lease, beside those of each delivery.
const (
	pointEffect    = "effect start"
	pointEffectEnd = "effect end"
	pointRenewed   = "lease renewed"
	pointStep      = "step recorded"
)

var leasePoints = []string{
	pointCounted, pointEffect, pointRenewed, pointEffectEnd, pointStep, pointHandlerEnd,
	pointCommitStart, pointTakeoverStart, pointTakeoverEnd, pointBetween, pointCommitEnd, pointDeliveryEnd,
	pointRecordStart, pointRecord, pointRecordEnd, pointDue, pointRetry, pointHold,
}

// What workers write down of leases.
const (
	saidLeased  = "lease granted"  // and when it was asked for
	saidRenewed = "lease renewed:" // the same
	saidAsked   = "effect asked"   // by which key
	saidPaid    = "effect made"
	saidSteps   = "step is recorded"
	saidStepped = "step recorded"
	saidChanges = "record by its holder"
	saidChanged = "recorded by its holder"
	saidTakes   = "completion asked for"
)

// underLeases are the stores that have leases: all.
func underLeases(t *testing.T) map[string]opener {
	t.Helper()
	all := map[string]opener{
		"postgres": newFragilePostgres, "mariadb": newFragileMariaDB, "sqlite": newSQLite, "dynamodb": newDynamoDB,
		"postgres+sql": newSQLDB, "lib/pq": newPQ, "pgbouncer": newPooledPostgres, "mysql": newProxiedMySQL,
		"postgres, days ahead": newSkewedPostgres(3 * 24 * time.Hour),
	}
	if rotation.Kills(t) > 0 {
		all["postgres+sql"], all["lib/pq"], all["mysql"] = newFragileSQLDB, newFragilePQ, newFragileMySQL
		delete(all, "postgres, days ahead")
	}
	return today(t, 1, all)
}

func leaseTrial(s *system, seed uint64, messages int) *trial {
	share := map[conduct]int{
		slow: 10, batched: 5, flaky: 8, once: 5, unwritten: 5, rival: 3, panics: 3, goexits: 2,
		permanent: 3, hopeless: 2, commits: 2, rollback: 2, swallows: 2, defers: 2, unreadable: 1, longwinded: 1,
	}
	for _, c := range s.dialect.without {
		delete(share, c)
	}
	return &trial{
		system: s,
		orders: planted(workload(seed, messages, mix{share: share, contested: 8}), 1, hangs, slow, unwritten, flaky),
		setup: setup{
			HandlerTimeout: 1500 * time.Millisecond, CommitTimeout: time.Second, HoldLimit: 10 * time.Second, MaxAttempts: 20, Redelivered: true,
			Leases: leases{TTL: 700 * time.Millisecond, Stop: true, Hang: 4 * time.Second, LoseReplies: 0.02, Seed: seed},
		},
		Config: fleet.Config{Seed: seed, Workers: 4, Duplicates: 0.5, Apart: 100, Reorder: 20},
		limit:  4*time.Minute + time.Duration(messages)*time.Second,
	}
}

// longer lets stopped workers stand still for longer than their leases live.
func (l leases) longer(kills []fleet.Kill) []fleet.Kill {
	for i := range kills {
		if kills[i].Kind == fleet.SIGSTOP {
			kills[i].Pause = 2*l.TTL + 100*time.Millisecond
		}
	}
	return kills
}

// TestLeasesAtEachPoint kills workers at each named point of a message under a lease, and
// stops some there for longer than the lease lives.
func TestLeasesAtEachPoint(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, everyday), func(t *testing.T, open opener) {
		seed := seedOf(t)
		kills := killsAt(seed, leasePoints, 1, 4)
		for _, point := range rotation.TurnEvery(t, len(everyday), 2, pointCounted, pointEffect, pointRenewed, pointEffectEnd, pointHandlerEnd, pointCommitStart, pointTakeoverStart, pointRecordStart) {
			kills = append(kills, fleet.Kill{Kind: fleet.SIGSTOP, Point: point, Hit: 6})
		}
		allStrike(t, seed, kills, func(seed uint64) *trial {
			tr := leaseTrial(open(t), seed, 40)
			kills = tr.Leases.longer(kills)
			return tr
		})
	})
}

// TestLeasesAtRandom hurts workers, the server and the network at random times. It goes on as
// TestRandom does in a soak.
func TestLeasesAtRandom(t *testing.T) {
	t.Parallel()
	on(t, underLeases(t), func(t *testing.T, open opener) {
		seed := seedOf(t)
		messages, kills, wanted := 30, 6, 1
		if soak := rotation.Kills(t); soak > 0 {
			messages, kills, wanted = 200, 100, soak
		}
		begun := time.Now()
		for killed, done := 0, false; !done; seed++ {
			done = !t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
				r := randomLeaseTrial(open(t), seed, messages, kills).run(t)
				r.must(t)
				t.Log(r.summary(), r.leaseSummary())
				killed += r.kills(fleet.SIGKILL)
			})
			if done = done || killed >= wanted; wanted > 1 {
				t.Logf("%d of %d workers killed after %s", killed, wanted, time.Since(begun).Round(time.Second))
			}
		}
	})
}

func randomLeaseTrial(s *system, seed uint64, messages, kills int) *trial {
	tr := leaseTrial(s, seed, messages)
	tr.MaxAttempts += kills / 10 // bad luck spends some
	acks := len(tr.orders) * len(consumers)
	random := fleet.RandomKills(seed, kills, acks, tr.Workers, fleet.SIGKILL, fleet.SIGKILL, fleet.SIGKILL, fleet.SIGSTOP, fleet.SIGTERM)
	random = append(random, fleet.Kill{Kind: fleet.SIGTERM, Point: pointEffect, Hit: 9}, fleet.Kill{Kind: fleet.SIGSTOP, Point: pointEffect, Hit: 12})
	tr.Kills = tr.Leases.longer(random)
	if s.proxy != nil {
		s.proxy.SetRandomFaults(lossy(seed))
		tr.disturb = outages(s, seed, max(5, kills/5))
	}
	return tr
}

// TestLeasesWhileTheStoreIsAway takes the database away for longer than a lease lives.
func TestLeasesWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, fragile(t)), func(t *testing.T, open opener) {
		tr := storeDownTrial(t, open, "")
		tr.HandlerTimeout, tr.DeliveryLimit = 1500*time.Millisecond, 0
		tr.Leases = leases{TTL: 700 * time.Millisecond, Stop: true, Seed: tr.Seed}
		r := tr.run(t)
		r.must(t)
		t.Log(r.summary(), r.leaseSummary())
	})
}
