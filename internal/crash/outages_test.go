package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/pause"
)

// lossy is what the network does to COMMITs.
func lossy(seed uint64) dbproxy.RandomFaults {
	return dbproxy.RandomFaults{
		Seed:              seed,
		LoseCommitReply:   0.03,
		LoseCommitRequest: 0.02,
		DelayCommitReply:  0.03,
		MaxDelay:          300 * time.Millisecond,
	}
}

// accident is something that happens to a system, and is over when inflict returns.
type accident struct {
	what    string
	inflict func(ctx context.Context) error
}

// span draws a duration.
type span func(from, to time.Duration) time.Duration

// killing kills a process and starts it again.
func killing(p process, between span) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.Kill(); err != nil {
			return err
		}
		pause.Sleep(ctx, between(0, 500*time.Millisecond))
		// The test may be over, but not without its server.
		return p.Start(context.WithoutCancel(ctx))
	}
}

// accidents are all that may happen to the system.
func (s *system) accidents(between span) []accident {
	accidents := []accident{
		{"ended all sessions", func(ctx context.Context) error {
			for range 5 {
				if err := s.endSessions(ctx); err != nil && ctx.Err() == nil {
					return err
				}
				pause.Sleep(ctx, between(0, 30*time.Millisecond))
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
			pause.Sleep(ctx, between(50*time.Millisecond, 1500*time.Millisecond))
			return nil
		}},
	}
	if s.server != nil {
		accidents = append(accidents, accident{"was killed", killing(s.server, between)})
	}
	if s.pooler != nil {
		accidents = append(accidents, accident{"has lost its pooler", killing(s.pooler, between)})
	}
	return accidents
}

// endSessions asks again where the parent's own connection is to a server that was killed
// since it was used.
func (s *system) endSessions(ctx context.Context) (err error) {
	for range 3 {
		if err = s.dialect.endSessions(ctx, s.admin); err == nil {
			return nil
		}
	}
	return err
}

// outages hurts the server and the network n times.
func outages(s *system, seed uint64, n int) func(context.Context, *ledger) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(rng.Int64N(int64(to-from))) }
	faults := s.accidents(between)
	return func(ctx context.Context, l *ledger) error {
		defer s.proxy.SetRandomFaults(dbproxy.RandomFaults{})
		var round []int // all kinds, before one comes again
		for range n {
			if len(round) == 0 {
				round = rng.Perm(len(faults))
			}
			if !pause.Sleep(ctx, between(200*time.Millisecond, 600*time.Millisecond)) {
				return nil
			}
			fault := faults[round[0]]
			round = round[1:]
			l.happened("the server " + fault.what)
			if err := fault.inflict(ctx); err != nil {
				return fmt.Errorf("the server %s: %w", fault.what, err)
			}
			l.happened("all is well again")
		}
		return nil
	}
}

// TestConflictsMeetLostCommits: while it is unknown whether a message was committed,
// another one under the same id may be. Neither must be taken for the other.
func TestConflictsMeetLostCommits(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, map[string]opener{"postgres": newProxiedPostgres, "mariadb": newProxiedMariaDB, "dynamodb": newDynamoDB}), func(t *testing.T, open opener) {
		s := open(t)
		seed := seedOf(t)
		s.proxy.SetRandomFaults(dbproxy.RandomFaults{Seed: seed, LoseCommitReply: 0.2, LoseCommitRequest: 0.3})
		tr := &trial{
			system: s,
			orders: workload(seed, 100, mix{share: map[conduct]int{batched: 30, flaky: 5}, contested: 100}),
			setup:  setup{HandlerTimeout: time.Second, CommitTimeout: time.Second},
			Config: fleet.Config{Seed: seed, Duplicates: 0.3, Apart: 5, Reorder: 40},
		}
		r := tr.run(t)
		r.must(t)
		t.Log(r.summary())
	})
}
