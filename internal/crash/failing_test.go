package crash

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/stores"
)

// everyday are the stores that all is tested on, each day on some.
var everyday = map[string]opener{"postgres": newPostgres, "mariadb": newMariaDB, "sqlite": newSQLite, "dynamodb": newDynamoDB}

// TestPoisonEndsFailed: messages that end every process that runs them fail for good,
// and take no other message with them.
func TestPoisonEndsFailed(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, everyday), func(t *testing.T, open opener) {
		seed := seedOf(t)
		const poisons = 2
		tr := &trial{
			system: open(t),
			orders: planted(workload(seed, 30, mix{share: map[conduct]int{slow: 30, once: 5}}), poisons, poison),
			setup:  setup{Redelivered: true, MaxAttempts: 5, HandlerTimeout: time.Second, CommitTimeout: time.Second},
			Config: fleet.Config{Seed: seed},
		}
		r := tr.run(t)
		r.must(t)
		t.Log(r.summary())
		for k, f := range r.failures {
			runs := 0
			for _, e := range r.history {
				if e.Consumer == k.consumer && e.ID == k.id && e.What == saidRun {
					runs++
				}
			}
			// The first one is not counted: nobody could know.
			if f.class != stores.ClassCrash || f.attempts != tr.MaxAttempts || runs > tr.MaxAttempts+1 {
				t.Errorf("%v: failed with the class %s after %d runs, %d of them counted, at most %d are allowed", k, f.class, runs, f.attempts, tr.MaxAttempts)
			}
		}
		if want := poisons * len(consumers); len(r.failures) != want {
			t.Errorf("%d messages have failed, want %d", len(r.failures), want)
		}
	})
}

// TestOrderSurvivesFailures: messages of one order key take effect in the order of
// publishing, although some fail at first, some for good, and workers are killed.
func TestOrderSurvivesFailures(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, map[string]opener{"postgres": newPostgres, "mariadb": newMariaDB, "sqlite": newSQLite}), func(t *testing.T, open opener) {
		seed := seedOf(t)
		orders := workload(seed, 45, mix{share: map[conduct]int{slow: 15, flaky: 15, once: 10, panics: 3, permanent: 5, hopeless: 3}})
		const keys = 12
		for i, o := range orders {
			orders[i].Key = fmt.Sprint(item(o.ID) % keys)
		}
		acks := len(orders) * len(consumers)
		tr := &trial{
			system: open(t),
			orders: orders,
			setup:  setup{OrderKeys: true},
			Config: fleet.Config{
				Seed: seed, Ordered: true, Duplicates: 0.2, Apart: 30,
				Kills: append(fleet.RandomKills(seed, 4, acks, 3),
					killsAt(seed, []string{pointRecordStart, pointRecordEnd, pointDue, pointTakeoverEnd, pointRetry}, 1, 6)...),
			},
		}
		r := tr.run(t)
		r.must(t)
		t.Log(r.summary())
	})
}

// fragile returns the stores that can be taken away: for every day, and for the soak.
func fragile(t *testing.T) map[string]opener {
	t.Helper()
	systems := map[string]opener{"postgres": newFragilePostgres, "mariadb": newFragileMariaDB, "sqlite": newSQLite, "dynamodb": newDynamoDB}
	if rotation.Kills(t) > 0 {
		systems["postgres+sql"], systems["lib/pq"], systems["mysql"] = newFragileSQLDB, newFragilePQ, newFragileMySQL
	}
	return systems
}

// outage is for how long the store is down: a minute in the soak.
func outage(t *testing.T) time.Duration {
	if rotation.Kills(t) > 0 {
		return time.Minute
	}
	return 2500 * time.Millisecond
}

// storeDownTrial takes the store away in the middle of a load, with a broker that drops
// what it has delivered three times.
func storeDownTrial(t *testing.T, open opener, variant string) *trial {
	t.Helper()
	seed := seedOf(t)
	const limit, before = 3, 20
	tr := &trial{
		system: open(t),
		orders: workload(seed, 80, mix{share: map[conduct]int{slow: 10, once: 5}}),
		setup:  setup{Variant: variant, HoldLimit: 5 * time.Minute, HandlerTimeout: 5 * time.Second},
		Config: fleet.Config{Seed: seed, DeliveryLimit: limit},
	}
	tr.disturb = func(ctx context.Context, l *ledger) error {
		for l.acks() < before {
			if !pause.Sleep(ctx, 5*time.Millisecond) {
				return nil
			}
		}
		l.happened("the server goes down")
		defer l.happened("all is well again")
		return tr.system.down(ctx, outage(t))
	}
	return tr
}

// down takes the database away for a while.
func (s *system) down(ctx context.Context, d time.Duration) error {
	if s.server != nil {
		if err := s.server.Kill(); err != nil {
			return err
		}
		pause.Sleep(ctx, d)
		return s.server.Start(context.WithoutCancel(ctx))
	}
	if service, ok := s.proxy.(*requestProxy); ok {
		service.goAway(true)
		defer service.goAway(false)
		pause.Sleep(ctx, d)
		return nil
	}
	conn, err := s.admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	// SQLite's own waiting gives way to writers that ask more often.
	if _, err := conn.ExecContext(ctx, "PRAGMA busy_timeout = 0"); err != nil {
		return err
	}
	for _, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil; _, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE") {
		if !pause.Sleep(ctx, 200*time.Microsecond) {
			return nil
		}
	}
	pause.Sleep(ctx, d)
	_, err = conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
	return err
}

// TestStoreDown: while the store is down nothing is lost, no delivery is spent and no
// attempt is counted; when it is back, all goes on by itself.
func TestStoreDown(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, fragile(t)), func(t *testing.T, open opener) {
		var stood time.Duration
		for range storeDownTries {
			r := storeDownTrial(t, open, "").run(t)
			r.must(t)
			t.Log(r.summary())
			if r.Dropped > 0 || r.Nacks > 0 {
				t.Errorf("%d deliveries were given back, %d messages dropped by the broker", r.Nacks, r.Dropped)
			}
			for k, recorded := range r.recorded {
				if recorded.counted > 0 && conductOf(k.id) != once || recorded.counted > 1 {
					t.Errorf("%v: %d attempts were counted as failed\n%s", k, recorded.counted, tell(about(r.history, k)))
				}
			}
			if stood = r.longestWithoutAck(); stood >= outage(t)*9/10 || t.Failed() {
				return
			}
		}
		t.Errorf("nothing was acked for %s at most, and the store was down for %s", stood, outage(t))
	})
}

// storeDownTries is how often a trial is run until the store goes down while there still
// is something to do: on a busy machine it may be too late.
const storeDownTries = 3

// longestWithoutAck is how long the whole service has stood still between two acks.
func (r *result) longestWithoutAck() (longest time.Duration) {
	var last time.Time
	for _, e := range r.history { // the parent's events are in order
		if e.What != "parent: "+string(fleet.EventAcked) {
			continue
		}
		if !last.IsZero() {
			longest = max(longest, e.At.Sub(last))
		}
		last = e.At
	}
	return longest
}
