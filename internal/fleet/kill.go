package fleet

import (
	"math/rand/v2"
	"time"
)

// Kind is what happens to a worker.
type Kind string

const (
	// SIGKILL ends the process at once, wherever it is.
	SIGKILL Kind = "SIGKILL"
	// SIGSTOP stands it still for Kill.Pause at least, then lets it go on.
	SIGSTOP Kind = "SIGSTOP"
	// SIGTERM asks it to leave. It gets no further deliveries, and is killed if it
	// has not left within Config.StopTimeout.
	SIGTERM Kind = "SIGTERM"
)

// Kill is one fault. It strikes at a moment, or at a point that a worker announces.
type Kill struct {
	Kind  Kind
	Pause time.Duration // for SIGSTOP; 0: 200 ms

	// The moment: once After deliveries were acked, and Delay later. Worker is who
	// is hit; if it is down just then, the next one that is up.
	After  int
	Delay  time.Duration
	Worker int

	// The point: if not empty, the fault hits the process that announces it
	// (Worker.Announce) for the Hit-th time, counted over all processes; 0 means
	// the first. The process is not let go on before the signal was sent; on Linux,
	// one that is stopped stands still by then.
	Point string
	Hit   int
}

func (k Kill) pause() time.Duration {
	if k.Pause > 0 {
		return k.Pause
	}
	return 200 * time.Millisecond
}

func (k Kill) hit() int { return max(k.Hit, 1) }

// The streams of random numbers that one seed gives, so that none disturbs another.
const (
	streamPlan uint64 = iota + 1
	streamKills
	streamWorkers
)

func random(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) //nolint:gosec // it must be replayable, not secret
}

// RandomKills schedules n faults of random kinds at random moments, spread over
// this many acks, each against a random one of the workers. Without kinds all are
// SIGKILL. The same arguments give the same schedule.
func RandomKills(seed uint64, n, acks, workers int, kinds ...Kind) []Kill {
	if len(kinds) == 0 {
		kinds = []Kind{SIGKILL}
	}
	rng := random(seed, streamKills)
	kills := make([]Kill, n)
	for i := range kills {
		from, to := acks*i/n, acks*(i+1)/n
		kills[i] = Kill{
			Kind:   kinds[rng.IntN(len(kinds))],
			After:  from + rng.IntN(max(to-from, 1)),
			Worker: rng.IntN(max(workers, 1)),
			// Away from the ack that is counted, into the middle of anything.
			Delay: time.Duration(rng.Int64N(int64(20 * time.Millisecond))),
		}
	}
	return kills
}
