package outbox

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A lane that has so much in hand takes no more: others are not kept waiting for it.
const (
	laneItems   = 2 * readLimit
	laneBytes   = 8 << 20
	lanePausing = 10_000 // by their weight: rows that pause after a refusal
	keyWeight   = 40     // of an order key, which costs each read more
)

// lane is what one destination has in hand. The desk locks it.
type lane struct {
	name      string
	publisher message.Publisher
	wake      chan struct{}

	ready   []*item            // whose turn it is
	behind  map[string][]*item // by the order keys of which one is ready or being published
	inHand  int                // until it is settled
	bytes   int
	pausing int

	away  paused        // the destination cannot be reached
	pause time.Duration // the last of those pauses
	full  int64         // the floor since it takes no more; -1: it does
}

func newLane(name string, p message.Publisher) *lane {
	return &lane{name: name, publisher: p, wake: make(chan struct{}, 1), behind: make(map[string][]*item), full: -1}
}

func (it *item) size() int { return len(it.Payload) + 64 }

func (it *item) weight() int {
	if it.OrderKey != nil {
		return keyWeight
	}
	return 1
}

func (l *lane) add(it *item) {
	l.inHand++
	l.bytes += it.size()
	if it.OrderKey != nil {
		key := string(it.OrderKey)
		if waiting, busy := l.behind[key]; busy {
			l.behind[key] = append(waiting, it)
			return
		}
		l.behind[key] = nil
	}
	l.ready = append(l.ready, it)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the next wave.
func (l *lane) take() []*item {
	n := min(len(l.ready), readLimit)
	wave := l.ready[:n:n]
	l.ready = l.ready[n:]
	return wave
}

// next makes ready what is behind an output that was published.
func (l *lane) next(it *item) {
	if it.OrderKey == nil {
		return
	}
	key := string(it.OrderKey)
	waiting := l.behind[key]
	if len(waiting) == 0 {
		delete(l.behind, key)
		return
	}
	l.ready, l.behind[key] = append(l.ready, waiting[0]), waiting[1:]
}

// nextNone takes away what is behind an output.
func (l *lane) nextNone(it *item) []*item {
	if it.OrderKey == nil {
		return nil
	}
	waiting := l.behind[string(it.OrderKey)]
	delete(l.behind, string(it.OrderKey))
	return l.without(waiting)
}

// clear takes away all that waits.
func (l *lane) clear() []*item { return l.dropIf(func(*item) bool { return true }) }

// dropIf takes away what waits and is so, with what is behind it.
func (l *lane) dropIf(is func(*item) bool) (dropped []*item) {
	var kept []*item
	for _, it := range l.ready {
		if !is(it) {
			kept = append(kept, it)
			continue
		}
		dropped = append(dropped, l.without([]*item{it})...)
		dropped = append(dropped, l.nextNone(it)...)
	}
	l.ready = kept
	return dropped
}

func (l *lane) without(items []*item) []*item {
	for _, it := range items {
		l.inHand--
		l.bytes -= it.size()
	}
	return items
}

// takesNone reports whether the destination is to be left out of a read. When it is no longer,
// what was left out is read again.
func (l *lane) takesNone(now time.Time, floor int64, resumed func(paused)) bool {
	if l.away.until.After(now) {
		return true
	}
	if !l.away.until.IsZero() {
		resumed(l.away)
		l.away = paused{}
	}
	switch full := l.inHand >= laneItems || l.bytes >= laneBytes || l.pausing >= lanePausing; {
	case full && l.full < 0:
		l.full = floor
	case !full && l.full >= 0:
		resumed(paused{from: l.full + 1})
		l.full = -1
	}
	return l.full >= 0
}
