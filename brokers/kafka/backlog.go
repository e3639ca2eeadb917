package kafka

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/lanes"
)

// item is a record that is not settled.
type item struct {
	record  *kgo.Record
	count   int         // deliveries in this session
	suspect bool        // an earlier owner may have begun it
	found   bool        // already counted as unfinished
	settled bool        // guarded by partition.mu
	unbegun bool        // no consumer has received it; guarded by partition.mu
	timer   *time.Timer // runs while the item waits for its redelivery
}

// backlog has the fetched records of a partition, in the order in which they may be delivered. The
// partition's mutex guards it.
type backlog struct {
	order    Order
	distance int // how many messages may be started from the oldest unsettled one on

	lanes     lanes.Lanes[*item] // by key, with OrderKey
	ready     []*item            // to be delivered before the queue
	queue     []*item            // fetched and not begun
	bytes     int                // bytes in the queue
	fetchedTo int64              // the last offset in the queue
	suspects  suspects
	offsets   offsets
	ahead     ahead // what an earlier owner settled
	handover  handover
}

func (b *backlog) init(c *Consume, workers int) {
	b.order, b.distance = c.Order, c.CommitDistance
	b.fetchedTo, b.offsets.next = unknownOffset, unknownOffset
	b.handover.from.Offset = unknownOffset
	b.suspects.init(max(c.CommitDistance, workers))
	if b.order == "" {
		b.order = OrderNone
		if workers == 1 {
			b.order = OrderPartition
		}
	}
	if b.order == OrderPartition {
		b.distance = 1
	}
}

// add appends fetched records to the queue.
func (b *backlog) add(records []*kgo.Record) {
	items := make([]item, len(records))
	for i, record := range records {
		if record.Offset <= b.fetchedTo {
			continue
		}
		b.fetchedTo = record.Offset
		items[i].record = record
		b.queue = append(b.queue, &items[i])
		b.bytes += size(record)
	}
}

// truncate drops the records from an offset on: the broker has lost them, and reuses the offsets.
// Handlers that run for these records go on.
func (b *backlog) truncate(from int64) {
	if b.fetchedTo < from {
		return
	}
	b.fetchedTo = from - 1
	b.ahead = ahead{}
	b.suspects.again()
	b.queue = slices.DeleteFunc(b.queue, func(it *item) bool {
		gone := it.record.Offset >= from
		if gone {
			b.bytes -= size(it.record)
		}
		return gone
	})
	b.offsets.truncate(from)
}

// drop drops the records that have not begun.
func (b *backlog) drop() {
	for _, it := range b.offsets.unsettled() {
		if it.timer != nil {
			it.timer.Stop()
		}
	}
	b.queue, b.ready, b.bytes = nil, nil, 0
}

// size returns a record's approximate memory.
func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value) + 100
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// next returns a message that need not wait for another one, or nil.
func (b *backlog) next() *item {
	if it := pop(&b.ready); it != nil {
		return it
	}
	for b.mayBeginNew() {
		it := pop(&b.queue)
		b.bytes -= size(it.record)
		it.suspect = b.suspects.has(it)
		b.offsets.begin(it)
		if b.ahead.has(it.record) {
			b.offsets.settle(it)
			continue
		}
		if !b.waits(it) || b.lanes.Join(string(it.record.Key), it) {
			return it
		}
	}
	return nil
}

// mayBegin reports whether next may find another message.
func (b *backlog) mayBegin() bool { return len(b.ready) > 0 || b.mayBeginNew() }

// mayBeginNew reports whether a message that has never begun may begin.
func (b *backlog) mayBeginNew() bool { return len(b.queue) > 0 && b.offsets.distance() < b.distance }

func pop(items *[]*item) *item {
	if len(*items) == 0 {
		return nil
	}
	it := (*items)[0]
	(*items)[0] = nil
	*items = (*items)[1:]
	return it
}

// settle notes that a message needs no further delivery.
func (b *backlog) settle(it *item) {
	b.offsets.settle(it)
	if !b.waits(it) {
		return
	}
	if next, ok := b.lanes.Next(string(it.record.Key)); ok {
		b.ready = append(b.ready, next)
	}
}

// waits reports whether a message waits for others with its key.
func (b *backlog) waits(it *item) bool { return b.order == OrderKey && it.record.Key != nil }
