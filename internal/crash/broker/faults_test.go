package broker

import (
	"math/rand/v2"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
)

// tickEvery is the measure of time by which faults are planned.
const tickEvery = 50 * time.Millisecond

// beyondAbsence is for how long workers are stopped beyond the time after which somebody
// else gets their deliveries.
const beyondAbsence = 1500 * time.Millisecond

// A place is a point, and how often about it is reached within what one round of faults
// takes.
type place struct {
	point string
	often int
}

// places are where workers are killed.
func places(s setup) []place {
	all := []place{
		{pointClaimed, 50},
		{pointBetween, 50},
		{pointCommitted, 50},
		{pointEnd, 50},
		{pointRetry, 6},
	}
	return append(all, kinds[s.Kind].places(s)...)
}

// faults are some rounds of them. In each, a worker is killed at each place and three
// are at random moments, two are stopped for longer than the broker waits while they
// hold a claim, of which one rolls back afterwards, and one is asked to leave. More are
// asked to leave after that, so that points in a rebalance are reached in any case.
func faults(seed uint64, s setup, rounds, workers int) []fleet.Kill {
	rng := rand.New(rand.NewPCG(seed, 3))
	const roundTicks = int(10 * time.Second / tickEvery)
	kills := fleet.RandomKills(seed, 3*rounds, rounds*roundTicks, workers)
	kills = append(kills, fleet.RandomKills(seed+1, rounds, rounds*roundTicks, workers, fleet.SIGTERM)...)
	for i := range 100 {
		kills = append(kills, fleet.Kill{Kind: fleet.SIGTERM, After: rounds*roundTicks + i*int(4*time.Second/tickEvery), Worker: i % workers})
	}
	for round := range rounds {
		absence := kinds[s.Kind].absence + beyondAbsence
		hit := func(often int) int { return often*round + often/2 + rng.IntN(often) }
		for _, at := range places(s) {
			kills = append(kills, fleet.Kill{Kind: fleet.SIGKILL, Point: at.point, Hit: hit(at.often)})
		}
		kills = append(kills,
			fleet.Kill{Kind: fleet.SIGSTOP, Pause: absence, Point: pointStall, Hit: 1 + 2*round},
			fleet.Kill{Kind: fleet.SIGSTOP, Pause: absence, Point: pointStarted, Hit: 50*round + 10},
		)
	}
	return kills
}

// patience is for how long a run waits for a fault to strike after the last one: a
// process may have ended by itself the moment before it was to be killed.
const patience = 10 * time.Second

// decisive is how many of the faults a run waits for.
func decisive(kills []fleet.Kill) int64 {
	var n int64
	for _, k := range kills {
		if k.Kind != fleet.SIGTERM {
			n++
		}
	}
	return n
}
