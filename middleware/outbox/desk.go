package outbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// item is an output that the relay has read.
type item struct {
	stores.PendingOutput

	term    int64 // its bucket's term, when it was handed out
	msg     *message.Message
	refusal *stores.RefusedOutput // nil: it is published
	backoff time.Duration         // after a refusal
}

func (it *item) key() (stores.OutputKey, bool) {
	return stores.OutputKey{Destination: it.Destination, OrderKey: string(it.OrderKey)}, it.OrderKey != nil
}

// desk has the outputs between the store and the publishers. Reads of the store leave out what is
// in flight and what pauses.
type desk struct {
	lanes  map[string]*lane
	leases *holding

	mu       sync.Mutex
	inFlight map[int64]*item // handed out and not settled
	done     results
	keys     pauses[stores.OutputKey]
	rows     pauses[int64] // outputs without an order key
	unknown  pauses[string]
	blocked  blocked
	floor    floor
	idle     time.Time // when the last read without a result began
	stale    int64     // grows when outputs being read may be out of order
}

func newDesk(publishers map[string]message.Publisher, leases *holding) *desk {
	d := &desk{
		lanes: make(map[string]*lane), leases: leases, inFlight: make(map[int64]*item), done: results{many: make(chan struct{}, 1)},
		blocked: blocked{keys: map[stores.OutputKey]bool{}}, keys: pauses[stores.OutputKey]{}, rows: pauses[int64]{}, unknown: pauses[string]{},
	}
	for name, p := range publishers {
		d.lanes[name] = newLane(name, p)
	}
	return d
}

// results has outputs that are to be settled. The desk's lock guards its items.
type results struct {
	items []*item
	many  chan struct{} // full when there are many
}

func (r *results) add(it *item) {
	if r.items = append(r.items, it); len(r.items) < settleLimit {
		return
	}
	select {
	case r.many <- struct{}{}:
	default:
	}
}

func (r *results) take(limit int) []*item {
	n := min(limit, len(r.items))
	taken := r.items[:n:n]
	r.items = r.items[n:]
	return taken
}

// lower makes reads start again after number to.
func (d *desk) lower(to int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lowerTo(to)
}

// lowerTo does so with the lock held. Paused outputs are read later, when the floor may have
// risen again, so they remember the lower start.
func (d *desk) lowerTo(to int64) {
	d.floor.lower(to)
	for name, p := range d.unknown {
		p.from = min(p.from, to+1)
		d.unknown[name] = p
	}
	for _, l := range d.lanes {
		l.away.from, l.full = min(l.away.from, to+1), min(l.full, to)
	}
}

// saw notes that the read that began at that time handed out, or left out, all outputs up to
// through.
func (d *desk) saw(through int64, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.floor.saw(through, at)
}

// looked notes a read that began at that time and found nothing to do.
func (d *desk) looked(at time.Time, p stores.Pending, stale int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stale == d.stale && len(p.Outputs) == 0 && !p.More && len(d.inFlight) == 0 {
		d.idle = at
	}
}

// works reports whether an output is in flight. The store is read again after it.
func (d *desk) works() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.inFlight) > 0
}

func (d *desk) idleSince(t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.idle.After(t)
}

// query returns the next read; from maps the floor to its start. It reads ended pauses again.
func (d *desk) query(now time.Time, from func(floor int64) (after int64)) (q stores.PendingQuery, stale int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	resumed := func(p paused) {
		d.floor.lower(p.from - 1)
		if p.lane != nil {
			p.lane.pausing -= p.weight
		}
	}
	q = stores.PendingQuery{Buckets: d.leases.buckets(), Limit: readLimit, Bytes: readBytes, Blocked: d.blocked.unknown}
	q.ExceptKeys = d.keys.resume(now, resumed)
	numbers := d.rows.resume(now, resumed)
	q.ExceptDestinations = d.unknown.resume(now, resumed)
	for _, l := range d.lanes {
		if l.takesNone(now, d.floor.at, resumed) {
			q.ExceptDestinations = append(q.ExceptDestinations, l.name)
		}
	}
	q.After = from(d.floor.begin(now))
	for number := range d.inFlight {
		numbers = append(numbers, number)
	}
	q.ExceptNumbers = slices.DeleteFunc(numbers, func(number int64) bool { return number <= q.After })
	return q, d.stale
}

// change enters another state of the leases. Outputs of lost buckets are dropped, and gained
// buckets are read from the beginning.
func (d *desk) change(to func() (gained bool)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if to() {
		d.stale++
		d.blocked.unknown = true
		d.lowerTo(0)
	}
	for _, l := range d.lanes {
		if lost := l.dropIf(func(it *item) bool { return !d.leases.has(it.Bucket, it.term) }); len(lost) > 0 {
			d.stale++
			d.leave(lost)
		}
	}
}

// resumes returns when the next pause ends.
func (d *desk) resumes() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	first := time.Now().Add(time.Hour)
	for _, at := range []time.Time{d.keys.first(first), d.rows.first(first), d.unknown.first(first)} {
		if at.Before(first) {
			first = at
		}
	}
	for _, l := range d.lanes {
		if l.away.until.After(time.Now()) && l.away.until.Before(first) {
			first = l.away.until
		}
	}
	return first
}

const unknownPause = time.Minute

// handOut gives outputs to their lanes, except those that may no longer begin. It returns the
// destinations without a lane.
func (d *desk) handOut(p stores.Pending, q stores.PendingQuery, stale int64) (unknown []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if stale != d.stale {
		d.lowerTo(0)
		return nil
	}
	if q.Blocked {
		d.blocked.are(p.Blocked)
	}
	released := d.blocked.released(p.Outputs)
	if len(released) > 0 {
		d.lowerTo(0)
	}
	now := time.Now()
	for i := range p.Outputs {
		it := &item{PendingOutput: p.Outputs[i], term: d.leases.termOf(p.Outputs[i].Bucket)}
		key, keyed := it.key()
		l := d.lanes[it.Destination]
		switch {
		case keyed && released[key]: // outputs of the key below the floor come first
		case it.term == 0 || d.inFlight[it.Number] != nil || keyed && d.keys.has(key) || d.rows.has(it.Number):
		case l == nil:
			if !d.unknown.has(it.Destination) {
				d.unknown[it.Destination] = paused{from: d.floor.at + 1, until: now.Add(unknownPause)}
				unknown = append(unknown, it.Destination)
			}
		case !l.away.until.IsZero():
		default:
			d.inFlight[it.Number] = it
			l.add(it)
		}
	}
	return unknown
}

// wave waits for outputs of a lane, and takes those that may be published now: one of each order
// key. It returns nil when ctx ends.
func (d *desk) wave(ctx context.Context, l *lane) []*item {
	for {
		if wave := d.take(ctx, l); len(wave) > 0 || ctx.Err() != nil {
			return wave
		}
		select {
		case <-l.wake:
		case <-ctx.Done():
		}
	}
}

func (d *desk) take(ctx context.Context, l *lane) []*item {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() != nil {
		d.leave(l.clear())
		return nil
	}
	return l.take()
}

// published makes the next output of the order key ready.
func (d *desk) published(l *lane, it *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.next(it)
	d.done.add(it)
}

// refused pauses the order key, or the output without one, until the refusal is recorded and the
// pause after it is over.
func (d *desk) refused(l *lane, it *item, r stores.RefusedOutput, pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	it.refusal, it.backoff = &r, pause
	forever := paused{lane: l, weight: it.weight(), from: it.Number, until: time.Now().Add(time.Hour * 24 * 365)}
	if key, keyed := it.key(); keyed {
		d.keys[key] = forever
	} else {
		d.rows[it.Number] = forever
	}
	l.pausing += it.weight()
	d.leave(l.nextNone(it))
	d.done.add(it)
}

// drop leaves an output, and those behind it, to a later read.
func (d *desk) drop(l *lane, it *item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stale++
	d.leave(l.without([]*item{it}))
	d.leave(l.nextNone(it))
}

func (d *desk) leave(items []*item) {
	for _, it := range items {
		delete(d.inFlight, it.Number)
		d.lowerTo(it.Number - 1)
	}
}

const firstAway = 500 * time.Millisecond

// went notes the end of a wave. If away says that the destination cannot be reached, it pauses,
// and its outputs are left to a later read; first is true for the first such report. A wave
// without a call of the publisher changes nothing.
func (d *desk) went(l *lane, asked bool, away error, back []*item) (first bool, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if away == nil {
		if asked {
			l.pause = 0
		}
		return false, time.Time{}
	}
	first = l.pause == 0
	l.pause = min(max(2*l.pause, firstAway), longestPause)
	for _, it := range back {
		d.leave(l.without([]*item{it}))
		d.leave(l.nextNone(it))
	}
	d.leave(l.clear())
	l.away = paused{from: d.floor.at + 1, until: time.Now().Add(pause.Jitter(l.pause))}
	return first, l.away.until
}

// results takes published and refused outputs to be settled.
func (d *desk) results(limit int) []*item {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.done.take(limit)
}

// settled notes that outputs are settled in the store. Their pauses begin now.
func (d *desk) settled(items []*item) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range items {
		delete(d.inFlight, it.Number)
		l := d.lanes[it.Destination]
		l.inHand--
		l.bytes -= it.size()
		if it.refusal == nil {
			continue
		}
		until := paused{lane: l, weight: it.weight(), from: it.Number, until: time.Now().Add(it.backoff)}
		if it.refusal.Failed {
			until.until = time.Now() // the store leaves out blocked keys
		}
		if key, keyed := it.key(); keyed {
			d.keys[key] = until
			if it.refusal.Blocks {
				d.blocked.keys[key] = true
			}
		} else {
			d.rows[it.Number] = until
		}
	}
}

// busy reports whether an output of a bucket is in flight.
func (d *desk) busy(bucket int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, it := range d.inFlight {
		if it.Bucket == bucket {
			return true
		}
	}
	return false
}
