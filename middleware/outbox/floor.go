package outbox

import (
	"math"
	"slices"
	"time"
)

// floorLag is how long after a read the floor rises to what the read has seen: a transaction may
// have drawn a lower number just before and commit later.
const floorLag = 250 * time.Millisecond

// floor is the number from which outputs are read. It only saves work: outputs below it may
// exist, and a sweep finds them.
type floor struct {
	at      int64
	marks   []mark
	lowered int64 // the lowest value that it was lowered to since the current read began
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

// lower makes reads start again after number to.
func (f *floor) lower(to int64) {
	f.at, f.lowered = max(min(f.at, to), 0), min(f.lowered, to)
	f.marks = slices.DeleteFunc(f.marks, func(m mark) bool { return m.number > to })
}

// pauses has what reads leave out for a while.
type pauses[K comparable] map[K]paused

// paused says until when reads leave something out, and from which number it is read then.
type paused struct {
	from  int64
	until time.Time

	lane   *lane // the lane that counts it; nil: none
	weight int
}

func (p pauses[K]) has(k K) bool {
	_, has := p[k]
	return has
}

// resume removes the ended pauses and calls resumed for each. It returns the keys of the others.
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

// first returns the earliest end of a pause, at most limit.
func (p pauses[K]) first(limit time.Time) time.Time {
	for _, one := range p {
		if one.until.Before(limit) {
			limit = one.until
		}
	}
	return limit
}
