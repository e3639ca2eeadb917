package fleet

import (
	"iter"
	"math/rand/v2"
	"slices"
	"time"
)

// record is a published message as the parent keeps it while it is unsettled.
type record struct {
	Message

	number int // in the order of publishing, from 1
	taken  time.Time
	count  int // deliveries so far
	holder int // the worker that got the last one
}

// owed is one delivery that must end with an ack. A message has one, and one more
// if it is duplicated.
type owed struct {
	*record

	duplicate bool
}

// plan turns the source into the deliveries that are owed, in the order in which
// they become due. It depends on nothing but the source and the configuration.
func plan(c Config) iter.Seq2[*owed, error] {
	return func(yield func(*owed, error) bool) {
		p := planner{Config: c, rng: random(c.Seed, streamPlan), yield: yield}
		number := 0
		for message, err := range c.Source {
			if err != nil {
				if p.finish() {
					yield(nil, err)
				}
				return
			}
			number++
			p.window = append(p.window, &record{Message: message, number: number, taken: time.Now(), holder: -1})
			if len(p.window) >= c.Reorder && !p.draw() {
				return
			}
		}
		p.finish()
	}
}

type planner struct {
	Config

	rng      *rand.Rand
	yield    func(*owed, error) bool
	position int
	window   []*record // published, not yet due
	later    []later   // duplicates, the next one last
}

type later struct {
	record *record
	due    int // position
}

// draw makes one message of the window due, and then the duplicates whose time has
// come. It reports false when nobody wants more.
func (p *planner) draw() bool {
	i := p.rng.IntN(len(p.window))
	message := p.window[i]
	p.window = slices.Delete(p.window, i, i+1)
	if !p.emit(&owed{record: message}) {
		return false
	}
	if p.rng.Float64() < p.Duplicates {
		apart := p.rng.IntN(2)
		if p.rng.IntN(2) == 0 {
			apart = p.rng.IntN(p.Apart + 1)
		}
		due := p.position + apart
		at, _ := slices.BinarySearchFunc(p.later, due, func(l later, due int) int { return due - l.due })
		p.later = slices.Insert(p.later, at, later{message, due})
	}
	for len(p.later) > 0 && p.later[len(p.later)-1].due <= p.position {
		if !p.emitLater() {
			return false
		}
	}
	return true
}

func (p *planner) finish() bool {
	for len(p.window) > 0 {
		if !p.draw() {
			return false
		}
	}
	for len(p.later) > 0 {
		if !p.emitLater() {
			return false
		}
	}
	return true
}

func (p *planner) emitLater() bool {
	next := p.later[len(p.later)-1]
	p.later = p.later[:len(p.later)-1]
	return p.emit(&owed{record: next.record, duplicate: true})
}

func (p *planner) emit(o *owed) bool {
	p.position++
	return p.yield(o, nil)
}
