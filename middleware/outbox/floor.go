package outbox

import (
	"math"
	"slices"
	"time"
)

// floorLag is how long after a read the floor rises to what it has seen: a transaction may
// have drawn its number just before, and nobody knows of it yet.
const floorLag = 250 * time.Millisecond

// floor is the number from which on outputs are read. It is a hint that saves work: what is
// below it may be there all the same, and is found by a sweep.
type floor struct {
	at      int64
	marks   []mark
	lowered int64 // the least that it was lowered to since the read that goes on has begun
}

type mark struct {
	number int64
	at     time.Time
}

// saw notes what the read that began at that time has seen.
func (f *floor) saw(through int64, at time.Time) {
	through = min(through, f.lowered)
	if n := len(f.marks); through <= f.at || n > 0 && (through <= f.marks[n-1].number || at.Sub(f.marks[n-1].at) < floorLag/10) {
		return
	}
	f.marks = append(f.marks, mark{through, at})
}

// begin returns the floor for a read that begins now.
func (f *floor) begin(now time.Time) int64 {
	for len(f.marks) > 0 && now.Sub(f.marks[0].at) >= floorLag {
		f.at = max(f.at, f.marks[0].number)
		f.marks = f.marks[1:]
	}
	f.lowered = math.MaxInt64
	return f.at
}

// lower lets what comes after a number be read again.
func (f *floor) lower(to int64) {
	f.at, f.lowered = max(min(f.at, to), 0), min(f.lowered, to)
	f.marks = slices.DeleteFunc(f.marks, func(m mark) bool { return m.number > to })
}

// pauses are what is left out of reads for a while.
type pauses[K comparable] map[K]paused

// paused is until when something is left out, and from which number on it is read then.
type paused struct {
	from  int64
	until time.Time

	lane   *lane // that counts it; nil: none does
	weight int
}

func (p pauses[K]) has(k K) bool {
	_, has := p[k]
	return has
}

// resume forgets what pauses no longer, after telling from where on it is to be read, and
// returns what is to be left out.
func (p pauses[K]) resume(now time.Time, resumed func(paused)) (left []K) {
	for k, one := range p {
		if one.until.After(now) {
			left = append(left, k)
			continue
		}
		resumed(one)
		delete(p, k)
	}
	return left
}

// first is the earliest end of a pause, at most limit.
func (p pauses[K]) first(limit time.Time) time.Time {
	for _, one := range p {
		if one.until.Before(limit) {
			limit = one.until
		}
	}
	return limit
}
