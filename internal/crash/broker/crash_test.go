package broker

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
)

// TestKilled hurts workers and the broker in every way while messages come, several
// times each, and some handlers fail. With MILLPOND_SOAK=n it goes on, with one seed
// after the other, until n workers were killed on each broker and store, or a hundred.
func TestKilled(t *testing.T) {
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(kind, func(t *testing.T) { killedOn(t, kind) })
	}
}

func killedOn(t *testing.T, kind string) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			rounds, wanted := 1, 1
			if soak := soakKills(t); soak > 0 {
				rounds, wanted = 3, min(soak, 100)
			}
			begun := time.Now()
			for seed, killed, broken := seedOf(t), 0, 0; killed < wanted && !t.Failed(); seed++ {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					tr := newTrial(t, kind, open, seed, rounds)
					r := tr.run(t)
					r.must(t)
					t.Log(r.summary())
					killed += r.Kills[fleet.SIGKILL]
					broken += tr.outages
				})
				if wanted > 1 {
					t.Logf("%d of %d workers and %d brokers killed after %s", killed, wanted, broken, time.Since(begun).Round(time.Second))
				}
			}
		})
	}
}

func newTrial(t *testing.T, kind string, open func(*testing.T) *database, seed uint64, rounds int) *trial {
	t.Helper()
	s := setup{Kind: kind, Slow: 30 * time.Millisecond, InFlight: 1}
	if seed%2 == 1 {
		s.InFlight = 4
	}
	kinds[kind].vary(seed, soakKills(t) > 0, &s)
	return &trial{
		setup: s, seed: seed, database: open(t),
		kills: faults(seed, s, rounds, workers), outages: rounds, messages: 300 * rounds,
		limit: 30*time.Second + time.Duration(rounds)*time.Minute,
	}
}

// TestAckFirstIsFound breaks the rule that an ack never precedes the commit. A harness
// that does not notice proves nothing about the adapter and the inbox that keep it.
func TestAckFirstIsFound(t *testing.T) {
	kills := make([]fleet.Kill, 4)
	for i := range kills {
		kills[i] = fleet.Kill{Kind: fleet.SIGKILL, Point: pointCommitted, Hit: 40 * (i + 1)}
	}
	seed := seedOf(t)
	tr := &trial{
		setup: setup{Kind: "kafka", Slow: 300 * time.Millisecond, InFlight: 1, AckFirst: true},
		seed:  seed, database: newPostgres(t),
		kills: kills, messages: 200, limit: time.Minute,
	}
	r := tr.run(t)
	t.Log(r.summary())
	if len(r.lost) == 0 {
		t.Error("messages were acked before they were committed, their workers killed, and nobody noticed")
	}
}
