package crash

import (
	"math/rand/v2"
	"testing"

	"github.com/millpond-go/millpond/internal/fleet"
)

// opener makes a system for one trial.
type opener func(*testing.T) *system

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
	on(t, map[string]opener{"postgres": newPostgres, "sqlite": newSQLite}, func(t *testing.T, open opener) {
		seed := seedOf(t)
		rng := rand.New(rand.NewPCG(seed, 2))
		var kills []fleet.Kill
		for _, point := range points {
			for i := range 2 {
				kills = append(kills, fleet.Kill{Kind: fleet.SIGKILL, Point: point, Hit: 1 + 5*i + rng.IntN(5)})
			}
		}
		tr := &trial{
			system: open(t),
			orders: workload(seed, 70, mix{share: map[conduct]int{slow: 30, flaky: 5}}),
			Config: fleet.Config{Seed: seed, Kills: kills, Duplicates: 0.5, Apart: 50, Reorder: 20},
		}
		r := tr.run(t)
		r.must(t)
		t.Log(r.summary())
		if n := r.Kills[fleet.SIGKILL]; n != len(kills) {
			t.Errorf("%d of %d kills struck: a point was not reached", n, len(kills))
		}
	})
}
