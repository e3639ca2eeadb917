package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
)

// TestKilled hurts workers and the broker in every way while messages come, several
// times each, and some handlers fail. Each day one broker meets one of the stores, by
// turns. With MILLPOND_SOAK=n it meets all of them, and goes on, with one seed after the
// other, until n workers were killed on each broker and store, or a hundred.
func TestKilled(t *testing.T) {
	for _, kind := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(kinds))...) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			killedOn(t, kind)
		})
	}
}

func killedOn(t *testing.T, kind string) {
	for _, name := range rotation.TurnEvery(t, len(kinds), 1, slices.Sorted(maps.Keys(databases))...) {
		open := databases[name]
		t.Run(name, func(t *testing.T) {
			rounds, wanted := 1, 1
			if soak := rotation.Kills(t); soak > 0 {
				rounds, wanted = 3, min(soak, 100)
			}
			begun := time.Now()
			for seed, killed, broken := rotation.Seed(t), 0, 0; killed < wanted && !t.Failed(); seed++ {
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
	kinds[kind].vary(seed, rotation.Kills(t) > 0, &s)
	return &trial{
		setup: s, seed: seed, database: open(t),
		kills: faults(seed, s, rounds, workers), outages: rounds, messages: 300 * rounds,
		limit: 2*time.Minute + time.Duration(rounds)*2*time.Minute,
	}
}

// TestLimitOfDeliveries has brokers that drop a message after three deliveries, and workers
// that are stopped while they hold a claim, for much longer than the broker waits for
// them, and then roll back. Whoever gets their messages meanwhile must hold them.
func TestLimitOfDeliveries(t *testing.T) {
	counting := slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(kind string) bool { return kind == "kafka" })
	for _, kind := range rotation.Turn(t, 1, counting...) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			stopped := kinds[kind].absence + 5*time.Second
			if rotation.Kills(t) > 0 {
				stopped = 30 * time.Second
			}
			seed := rotation.Seed(t)
			tr := &trial{
				setup: setup{Kind: kind, Slow: 30 * time.Millisecond, InFlight: 4, Limit: 3},
				seed:  seed, database: newPostgres(t),
				kills: []fleet.Kill{
					{Kind: fleet.SIGSTOP, Pause: stopped, Point: pointStall, Hit: 1},
					{Kind: fleet.SIGSTOP, Pause: stopped, Point: pointStarted, Hit: 20},
				},
				messages: 150, limit: 2 * time.Minute,
				// NATS counts what it sends to those who stand still.
				outlasted: kind == "nats" && stopped > 2*kinds[kind].absence,
			}
			r := tr.run(t)
			r.must(t)
			t.Log(r.summary())
			if n := r.Kills[fleet.SIGSTOP]; n == 0 {
				t.Error("nobody was stopped")
			}
		})
	}
}

// TestQuickNacksAreFound gives back what is in flight elsewhere instead of holding it: the
// broker counts, and drops it.
func TestQuickNacksAreFound(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 3) {
		return
	}
	tr := &trial{
		setup: setup{Kind: "sqs", Slow: 30 * time.Millisecond, InFlight: 4, Limit: 3, Hasty: true},
		seed:  rotation.Seed(t), database: newPostgres(t),
		kills:    []fleet.Kill{{Kind: fleet.SIGSTOP, Pause: 15 * time.Second, Point: pointStarted, Hit: 10}},
		messages: 60, limit: 40 * time.Second,
	}
	r := tr.run(t)
	t.Log(r.summary())
	if r.dropped == 0 {
		t.Error("messages in flight were given back until the broker dropped them, and nobody noticed")
	}
}

// TestAckFirstIsFound breaks the rules that an ack never precedes the commit, that what
// cannot be read is not run, and that a retry has the key. A harness that does not notice proves nothing about the adapter
// and the inbox that keep them. A kill may find no slow handler at work, whose message alone is lost: then it is tried again.
func TestAckFirstIsFound(t *testing.T) {
	if !rotation.Every(t, 3) {
		return
	}
	const tries = 4
	seed := rotation.Seed(t)
	var unseen []string
	for try := range uint64(tries) {
		kills := make([]fleet.Kill, 4)
		for i := range kills {
			kills[i] = fleet.Kill{Kind: fleet.SIGKILL, Point: pointCommitted, Hit: 40 * (i + 1)}
		}
		tr := &trial{
			setup: setup{Kind: "kafka", Slow: 300 * time.Millisecond, InFlight: 1, AckFirst: true, Blind: true, Keyless: true},
			seed:  seed + try, database: newPostgres(t),
			kills: kills, messages: 200, limit: time.Minute,
		}
		r := tr.run(t)
		t.Log(r.summary())
		if unseen = unseenOf(r); len(unseen) == 0 {
			return
		}
	}
	t.Errorf("nobody noticed that %s", strings.Join(unseen, "; that "))
}

// unseenOf returns which of the broken rules a trial did not find.
func unseenOf(r *result) (unseen []string) {
	if len(r.lost) == 0 {
		unseen = append(unseen, "messages were acked before they were committed, and their workers killed")
	}
	if !slices.ContainsFunc(r.found, func(v violation) bool { return conductOf(v.id) == misread }) {
		unseen = append(unseen, "messages that cannot be read were run")
	}
	if !slices.ContainsFunc(r.found, func(v violation) bool { return strings.Contains(v.text, "never delivered as that") }) {
		unseen = append(unseen, "messages were retried without their keys")
	}
	return unseen
}
