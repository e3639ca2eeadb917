package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pgproxy"
)

// lossy is what the network does to COMMITs.
func lossy(seed uint64) pgproxy.RandomFaults {
	return pgproxy.RandomFaults{
		Seed:              seed,
		LoseCommitReply:   0.03,
		LoseCommitRequest: 0.02,
		DelayCommitReply:  0.03,
		MaxDelay:          300 * time.Millisecond,
	}
}

// outages hurts the server and the network n times.
func outages(s *system, seed uint64, n int) func(context.Context, *ledger) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	faults := []struct {
		name    string
		inflict func(ctx context.Context) error
	}{
		{"was killed", func(ctx context.Context) error {
			if err := s.server.Kill(); err != nil {
				return err
			}
			wait(ctx, between(0, 500*time.Millisecond))
			// The test may be over, but not without its server.
			return s.server.Start(context.WithoutCancel(ctx))
		}},
		{"ended all sessions", func(ctx context.Context) error {
			for range 5 {
				_, err := s.admin.ExecContext(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name <> $1`, adminName)
				if err != nil && ctx.Err() == nil {
					return err
				}
				wait(ctx, between(0, 30*time.Millisecond))
			}
			return nil
		}},
		{"was cut off", func(context.Context) error {
			s.proxy.CutAll()
			return nil
		}},
		{"was out of reach", func(ctx context.Context) error {
			s.proxy.Freeze()
			defer s.proxy.Thaw()
			wait(ctx, between(50*time.Millisecond, 1500*time.Millisecond))
			return nil
		}},
	}
	return func(ctx context.Context, l *ledger) error {
		defer s.proxy.SetRandomFaults(pgproxy.RandomFaults{})
		var round []int // all kinds, before one comes again
		for range n {
			if len(round) == 0 {
				round = rng.Perm(len(faults))
			}
			if !wait(ctx, between(200*time.Millisecond, 600*time.Millisecond)) {
				return nil
			}
			fault := faults[round[0]]
			round = round[1:]
			l.happened("the server " + fault.name)
			if err := fault.inflict(ctx); err != nil {
				return fmt.Errorf("the server %s: %w", fault.name, err)
			}
			l.happened("all is well again")
		}
		return nil
	}
}

// wait reports false if ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// TestConflictsMeetLostCommits: while it is unknown whether a message was committed,
// another one under the same id may be. Neither must be taken for the other.
func TestConflictsMeetLostCommits(t *testing.T) {
	t.Parallel()
	s := newProxiedPostgres(t)
	seed := seedOf(t)
	s.proxy.SetRandomFaults(pgproxy.RandomFaults{Seed: seed, LoseCommitReply: 0.2, LoseCommitRequest: 0.3})
	tr := &trial{
		system: s,
		orders: workload(seed, 100, mix{share: map[conduct]int{batched: 30, flaky: 5}, contested: 100}),
		setup:  setup{HandlerTimeout: time.Second, CommitTimeout: time.Second},
		Config: fleet.Config{Seed: seed, Duplicates: 0.3, Apart: 5, Reorder: 40},
	}
	r := tr.run(t)
	r.must(t)
	t.Log(r.summary())
}
