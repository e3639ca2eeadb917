package crash

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/millpond-go/millpond/internal/fleet"
	"github.com/millpond-go/millpond/internal/rotation"
)

// opener makes a system for one trial.
type opener func(*testing.T) *system

// today leaves of some stores the n whose turn it is.
func today(t *testing.T, n int, all map[string]opener) map[string]opener {
	t.Helper()
	return todayEvery(t, 1, n, all)
}

// todayEvery is today for a test that has its own turn every so many days.
func todayEvery(t *testing.T, days, n int, all map[string]opener) map[string]opener {
	t.Helper()
	today := make(map[string]opener)
	for _, name := range rotation.TurnEvery(t, days, n, slices.Sorted(maps.Keys(all))...) {
		today[name] = all[name]
	}
	return today
}

// on runs a test on each store.
func on(t *testing.T, stores map[string]opener, test func(*testing.T, opener)) {
	t.Helper()
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

// TestKilledAtEachPoint kills workers, each time at a named point of a delivery.
func TestKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, everyday), func(t *testing.T, open opener) {
		seed := seedOf(t)
		allStrike(t, seed, killsAt(seed, points, often(t), 5), func(seed uint64) *trial {
			return &trial{
				system: open(t),
				orders: workload(seed, 50, mix{share: map[conduct]int{slow: 30, flaky: 5}}),
				setup:  setup{Redelivered: true},
				Config: fleet.Config{Seed: seed, Duplicates: 0.5, Apart: 50, Reorder: 20},
			}
		})
	})
}

// TestKilledAtEachPointOfAFailure kills workers while a failure is recorded, while the
// retry worker has it, and while an operator decides about it.
func TestKilledAtEachPointOfAFailure(t *testing.T) {
	t.Parallel()
	on(t, today(t, 1, everyday), func(t *testing.T, open opener) {
		seed := seedOf(t)
		allStrike(t, seed, killsAt(seed, failurePoints, often(t), 3), func(seed uint64) *trial {
			return &trial{
				system: open(t),
				orders: planted(workload(seed, 40, mix{share: map[conduct]int{
					flaky: 20, once: 5, rival: 5, panics: 5, exits: 2, outputs: 5, permanent: 5, hopeless: 4, longwinded: 4,
				}}), 8, panics, permanent), // panics are what ends with a release
				setup:  setup{Redelivered: true, Operated: true},
				Config: fleet.Config{Seed: seed, Duplicates: 0.3, Apart: 50, Reorder: 20},
			}
		})
	})
}

// often is how many workers are killed at each point.
func often(t *testing.T) int {
	t.Helper()
	if rotation.Kills(t) > 0 {
		return 2
	}
	return 1
}

// allStrike runs a trial whose kills are all at points. How often a point is reached
// depends on what the kills before it have cut short: a kill whose point was not reached
// often enough strikes in another trial.
func allStrike(t *testing.T, seed uint64, kills []fleet.Kill, trialOf func(seed uint64) *trial) {
	t.Helper()
	const trials = 4
	for i := range uint64(trials) {
		tr := trialOf(seed + i)
		tr.Kills = kills
		r := tr.run(t)
		r.must(t)
		if tr.Batches {
			r.mustShare(t)
		}
		t.Log(r.summary())
		if kills = notStruck(kills, r.history); len(kills) == 0 {
			return
		}
		soon := make(map[string]int)
		for j := range kills {
			soon[kills[j].Point]++
			kills[j].Hit = soon[kills[j].Point]
		}
	}
	t.Errorf("points were not reached in %d trials: %+v", trials, kills)
}

// notStruck returns the kills that the history of a trial does not have.
func notStruck(kills []fleet.Kill, history []event) []fleet.Kill {
	missing := slices.Clone(kills)
	for _, e := range history {
		if i := slices.IndexFunc(missing, func(k fleet.Kill) bool { return e.Detail == string(k.Kind)+" "+k.Point }); i >= 0 {
			missing = slices.Delete(missing, i, i+1)
		}
	}
	return missing
}

// killsAt schedules n kills at each point, within every so many times that it is
// reached.
func killsAt(seed uint64, points []string, n, every int) []fleet.Kill {
	rng := rand.New(rand.NewPCG(seed, 4))
	var kills []fleet.Kill
	for _, point := range points {
		for i := range n {
			kills = append(kills, fleet.Kill{Kind: fleet.SIGKILL, Point: point, Hit: 1 + every*i + rng.IntN(every)})
		}
	}
	return kills
}
