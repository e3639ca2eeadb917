package memory

import (
	"container/heap"
	"sync"
	"time"
)

// group is one consumer group of a topic. The topic's mutex guards it: hold it to call a method,
// except those that timers call.
type group struct {
	topic   *topic
	ready   queue
	changed sync.Cond // an item may be ready, or an intake ended
	delayed map[*item]*time.Timer
	dead    []deadItem
}

// item is a message as one group sees it.
type item struct {
	entry      *entry
	deliveries int // how often a consumer has received it
	spent      int // deliveries that count towards the limit
}

type deadItem struct {
	*item
	at time.Time
}

func newGroup(t *topic) *group {
	g := &group{topic: t, delayed: make(map[*item]*time.Timer)}
	g.changed.L = &t.mu
	return g
}

func (g *group) add(e *entry) {
	e.open++
	g.putBack(&item{entry: e})
}

// take removes and returns the first ready item, or nil.
func (g *group) take() *item {
	if g.ready.Len() == 0 {
		return nil
	}
	return heap.Pop(&g.ready).(*item)
}

// putBack makes the item ready, in its place by age.
func (g *group) putBack(it *item) {
	heap.Push(&g.ready, it)
	g.changed.Signal()
}

func (g *group) putBackAfter(it *item, delay time.Duration) {
	if delay <= 0 {
		g.putBack(it)
		return
	}
	g.delayed[it] = time.AfterFunc(delay, func() {
		g.topic.mu.Lock()
		defer g.topic.mu.Unlock()
		if _, waiting := g.delayed[it]; !waiting {
			return // the broker was closed
		}
		delete(g.delayed, it)
		g.putBack(it)
	})
}

// spend counts a failed or lost delivery, and reports whether the item became a dead letter.
func (g *group) spend(it *item) bool {
	it.spent++
	limit := g.topic.config.DeliveryLimit
	if limit == 0 || it.spent < limit {
		return false
	}
	g.dead = append(g.dead, deadItem{item: it, at: time.Now()})
	return true
}

// wakeAll wakes subscriptions whose intake has ended. It locks the mutex itself.
func (g *group) wakeAll() {
	g.topic.mu.Lock()
	defer g.topic.mu.Unlock()
	g.changed.Broadcast()
}

// queue is a heap of items by age, oldest first.
type queue []*item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].entry.seq < q[j].entry.seq }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(it any)       { *q = append(*q, it.(*item)) }

func (q *queue) Pop() any {
	last := len(*q) - 1
	it := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return it
}
