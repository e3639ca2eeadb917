package outbox

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A lane at one of these limits takes no more, so that other lanes need not wait for it.
const (
	laneItems   = 2 * readLimit
	laneBytes   = 8 << 20
	lanePausing = 10_000 // weight of the outputs and order keys that pause after a refusal
	keyBytes    = 64     // of an order key weigh as much as an output, since each read names the keys
)

// lane has the outputs of one destination. The desk's lock guards it.
type lane struct {
	name      string
	publisher message.Publisher
	wake      chan struct{}

	ready   []*item            // to be published next
	behind  map[string][]*item // by the order keys that have one output ready or being published
	inHand  int                // outputs that are not settled
	bytes   int
	pausing int

	away  paused        // the destination cannot be reached
	pause time.Duration // the length of the last such pause
	full  int64         // the floor when it became full; -1: not full
}

func newLane(name string, p message.Publisher) *lane {
	return &lane{name: name, publisher: p, wake: make(chan struct{}, 1), behind: make(map[string][]*item), full: -1}
}

func (it *item) size() int { return len(it.Payload) + 64 }

func (it *item) weight() int { return 1 + len(it.OrderKey)/keyBytes }

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

// next makes the output behind a published one ready.
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

// nextNone removes the outputs behind an output.
func (l *lane) nextNone(it *item) []*item {
	if it.OrderKey == nil {
		return nil
	}
	waiting := l.behind[string(it.OrderKey)]
	delete(l.behind, string(it.OrderKey))
	return l.without(waiting)
}

// clear removes all waiting outputs.
func (l *lane) clear() []*item { return l.dropIf(func(*item) bool { return true }) }

// dropIf removes the waiting outputs that match, and those behind them.
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

// takesNone reports whether a read should leave the destination out. When it becomes false, the
// left-out outputs are read again.
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
