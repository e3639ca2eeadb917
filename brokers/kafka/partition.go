package kafka

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// item is a record on its way to being settled.
type item struct {
	record  *kgo.Record
	count   int         // deliveries in this session
	settled bool        // guarded by partition.mu
	timer   *time.Timer // runs while the item waits for its redelivery
}

// partition is one partition for as long as it is assigned. Its workers take messages,
// deliver each and see to its settlement.
type partition struct {
	session *session
	id      int32
	order   Order
	workers int

	stopping chan struct{} // closed by stop: nothing more is delivered
	gone     chan struct{} // closed by giveUp: settlements no longer count
	idle     chan struct{} // closed when the last worker has ended

	mu        sync.Mutex
	changed   sync.Cond // there may be something to take
	stopped   bool
	givenUp   bool
	paused    bool               // not fetched from
	watched   bool               // the intake waits until it is hungry
	enough    int                // bytes that are plenty
	lanes     map[string][]*item // by key in flight: those that wait for it, with OrderKey
	ready     []*item            // may be delivered before the queue
	queue     []*item            // fetched, nothing done yet
	bytes     int                // of the queue
	fetchedTo int64              // the last offset in the queue
	suspects  int64              // before this offset an earlier owner may have been
	offsets   offsets
	ahead     ahead // settled by an earlier owner
	committed int   // offsets.settled at the last commit
	running   int   // deliveries unsettled
}

func newPartition(s *session, id int32) *partition {
	config := &s.subscriber.broker.config.Consume
	p := &partition{
		session:   s,
		id:        id,
		order:     config.Order,
		workers:   min(config.InFlightPerPartition, s.subscriber.config.InFlight),
		stopping:  make(chan struct{}),
		gone:      make(chan struct{}),
		idle:      make(chan struct{}),
		lanes:     make(map[string][]*item),
		fetchedTo: unknownOffset,
		suspects:  math.MaxInt64,
		offsets:   offsets{next: unknownOffset},
	}
	p.changed.L = &p.mu
	if p.order == "" {
		p.order = OrderNone
		if p.workers == 1 {
			p.order = OrderPartition
		}
	}
	var workers sync.WaitGroup
	for range p.workers {
		workers.Go(p.work)
	}
	go func() {
		workers.Wait()
		close(p.idle)
	}()
	return p
}

// add appends fetched records to the queue.
func (p *partition) add(records []*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	if p.fetchedTo == unknownOffset && len(records) > 0 {
		p.suspectFrom(records[0].Offset)
	}
	items := make([]item, len(records))
	for i, record := range records {
		if record.Offset <= p.fetchedTo {
			continue
		}
		p.fetchedTo = record.Offset
		items[i].record = record
		p.queue = append(p.queue, &items[i])
		p.bytes += size(record)
	}
	p.changed.Broadcast()
}

// truncate forgets what was fetched from an offset on: the broker has lost it, and gives
// these offsets again. What runs of it ends as it may.
func (p *partition) truncate(from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fetchedTo < from {
		return
	}
	p.fetchedTo = from - 1
	p.ahead = ahead{}
	p.suspects = math.MaxInt64
	p.queue = slices.DeleteFunc(p.queue, func(it *item) bool {
		gone := it.record.Offset >= from
		if gone {
			p.bytes -= size(it.record)
		}
		return gone
	})
	p.offsets.truncate(from)
}

// size is about what a record takes in memory.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value) + 100
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// take waits for the next message to deliver. It returns nil when there will be none.
func (p *partition) take() *item {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.stopped {
			return nil
		}
		if len(p.ready) > 0 {
			it := p.ready[0]
			p.ready[0] = nil
			p.ready = p.ready[1:]
			return it
		}
		if it := p.next(); it != nil {
			return it
		}
		p.changed.Wait()
	}
}

// next returns the first message of the queue that does not have to wait for another.
func (p *partition) next() *item {
	distance := p.session.subscriber.broker.config.Consume.CommitDistance
	if p.order == OrderPartition {
		distance = 1
	}
	for len(p.queue) > 0 && p.offsets.distance() < distance {
		it := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.bytes -= size(it.record)
		p.eaten()
		p.offsets.begin(it)
		if p.ahead.has(it.record) {
			p.offsets.settle(it)
			continue
		}
		if p.order != OrderKey || it.record.Key == nil {
			return it
		}
		key := string(it.record.Key)
		waiting, busy := p.lanes[key]
		if !busy {
			p.lanes[key] = nil
			return it
		}
		p.lanes[key] = append(waiting, it)
	}
	return nil
}

// settled notes that a message needs no further delivery.
func (p *partition) settled(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.offsets.settle(it)
	if p.order == OrderKey && it.record.Key != nil {
		key := string(it.record.Key)
		if waiting := p.lanes[key]; len(waiting) > 0 {
			p.ready = append(p.ready, waiting[0])
			p.lanes[key] = waiting[1:]
		} else {
			delete(p.lanes, key)
		}
	}
	if p.workers > 1 { // a worker alone looks by itself
		p.changed.Signal()
	}
}

// again lets a message be delivered once more, after a delay. Until then it keeps its
// place in the order.
func (p *partition) again(it *item, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	it.timer = time.AfterFunc(delay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ready = append(p.ready, it)
		p.changed.Signal()
	})
}

// full reports whether the partition has plenty waiting and is still fetched from. The
// intake hears when that has changed.
func (p *partition) full(enough int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enough = enough
	p.watched = p.hasPlenty()
	return p.watched
}

// hasPlenty is full with p.mu held.
func (p *partition) hasPlenty() bool {
	return !p.paused && !p.stopped && (len(p.queue) > plentyRecords || p.bytes > p.enough)
}

// pause ends the fetching if there is still plenty waiting.
func (p *partition) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hasPlenty() {
		p.paused = true
		p.session.client.PauseFetchPartitions(map[string][]int32{p.session.topic: {p.id}})
	}
}

// eaten notes that the queue has become shorter: fetching resumes when half is gone, and
// the intake need not wait any longer for a partition that is hungry. p.mu must be held.
func (p *partition) eaten() {
	if p.paused && len(p.queue) <= plentyRecords/2 && p.bytes <= p.enough/2 {
		p.unpause()
	}
	if p.watched && !p.hasPlenty() {
		p.watched = false
		p.session.intake.poke()
	}
}

// unpause undoes pause. p.mu must be held.
func (p *partition) unpause() {
	if p.paused {
		p.paused = false
		p.session.client.ResumeFetchPartitions(map[string][]int32{p.session.topic: {p.id}})
	}
}

// stop delivers nothing more. What runs may still be settled.
func (p *partition) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	p.stopped = true
	close(p.stopping)
	p.changed.Broadcast()
	for _, it := range p.offsets.unsettled() {
		if it.timer != nil {
			it.timer.Stop()
		}
	}
	p.queue, p.ready, p.lanes, p.bytes = nil, nil, nil, 0
	p.unpause() // the client remembers a pause beyond the assignment
	p.session.intake.poke()
}

// giveUp ends the deliveries that run: their settlement no longer counts. It returns
// how many there are. The partition must be stopped.
func (p *partition) giveUp() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.givenUp {
		p.givenUp = true
		close(p.gone)
	}
	return p.running
}

// stopNow stops and gives up, without waiting.
func (p *partition) stopNow() {
	p.stop()
	p.giveUp()
}
