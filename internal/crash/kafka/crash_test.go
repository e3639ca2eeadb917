package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/fleet"
)

// TestKilled hurts workers and the broker in every way while messages come, several
// times each, and some handlers fail. With MILLPOND_SOAK=n it goes on, with one seed
// after the other, until n workers were killed on each store, or a hundred: each costs a
// session timeout.
func TestKilled(t *testing.T) {
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			rounds, wanted := 1, 1
			if soak := soakKills(t); soak > 0 {
				rounds, wanted = 3, min(soak, 100)
			}
			begun := time.Now()
			for seed, killed, broken := seedOf(t), 0, 0; killed < wanted && !t.Failed(); seed++ {
				t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
					tr := newTrial(t, open, seed, rounds)
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

func newTrial(t *testing.T, open func(*testing.T) *database, seed uint64, rounds int) *trial {
	t.Helper()
	s := setup{Slow: 30 * time.Millisecond, InFlight: 1, Protocol: kafka.ProtocolClassic}
	if seed%2 == 1 {
		s.InFlight = 4
	}
	if seed/2%4 == 3 && soakKills(t) > 0 {
		s.Protocol = kafka.ProtocolConsumer
	}
	return &trial{
		setup: s, seed: seed, database: open(t), cluster: newCluster(t),
		kills: faults(seed, s.Protocol, rounds, workers), outages: rounds, messages: 300 * rounds,
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
		setup: setup{Slow: 300 * time.Millisecond, InFlight: 1, AckFirst: true},
		seed:  seed, database: newPostgres(t), cluster: newCluster(t),
		kills: kills, messages: 200, limit: time.Minute,
	}
	r := tr.run(t)
	t.Log(r.summary())
	if len(r.lost) == 0 {
		t.Error("messages were acked before they were committed, their workers killed, and nobody noticed")
	}
}
