package crash

import (
	"iter"
	"sync"
	"time"

	"github.com/millpond-go/millpond/internal/fleet"
)

// key is what effects are counted once for.
type key struct{ consumer, id string }

// subject is one message for one consumer. Two subjects with one key are in conflict.
type subject struct{ consumer, payload string }

// entry is what the ledger knows about a subject.
type entry struct {
	order

	consumer                                  string
	published, deliveries, acks, nacks, drops int
	firstAck                                  time.Time
}

func (e *entry) key() key { return key{e.consumer, e.ID} }

// ledger is kept by the parent, outside of the system: what was published, and what
// the workers have acked, and when.
type ledger struct {
	mu      sync.Mutex
	entries map[subject]*entry
	order   []subject // as they were first published
	events  []event
	acked   chan<- *entry // to look whether it was right to ack; nil: nobody looks
	lost    lost
}

func newLedger(acked chan<- *entry) *ledger {
	return &ledger{entries: make(map[subject]*entry), acked: acked}
}

// source publishes the orders to all consumers and writes them down.
func (l *ledger) source(orders []order) iter.Seq2[fleet.Message, error] {
	return func(yield func(fleet.Message, error) bool) {
		for _, o := range orders {
			for _, consumer := range consumers {
				l.publish(o, consumer)
				if !yield(o.to(consumer), nil) {
					return
				}
			}
		}
	}
}

func (l *ledger) publish(o order, consumer string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := subject{consumer, o.Payload}
	e := l.entries[s]
	if e == nil {
		e = &entry{order: o, consumer: consumer}
		l.entries[s] = e
		l.order = append(l.order, s)
	}
	e.published++
}

// observe writes down what the fleet has seen.
func (l *ledger) observe(f fleet.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := event{At: time.Now(), PID: f.PID, What: "parent: " + string(f.Kind)}
	switch f.Kind {
	case fleet.EventDelivered, fleet.EventAcked, fleet.EventNacked, fleet.EventDropped:
		entry := l.entries[subject{consumerOf(f.Message.Topic), string(f.Message.Payload)}]
		e.Consumer, e.ID, e.Payload = entry.consumer, entry.ID, entry.Payload
		l.count(entry, f.Kind, e.At)
	case fleet.EventKilled:
		e.Detail = string(f.Fault) + " " + f.Point
	case fleet.EventExited:
		if f.Err != nil {
			e.Detail = f.Err.Error()
		}
	case fleet.EventAnnounced:
		return // the worker's history says it
	}
	l.events = append(l.events, e)
}

func (l *ledger) count(e *entry, kind fleet.EventKind, at time.Time) {
	switch kind {
	case fleet.EventDelivered:
		e.deliveries++
	case fleet.EventNacked:
		e.nacks++
	case fleet.EventDropped:
		e.drops++
	case fleet.EventAcked:
		e.acks++
		if e.firstAck.IsZero() {
			e.firstAck = at
		}
		if l.lost.in(at) {
			break
		}
		select {
		case l.acked <- e:
		default: // a sample is enough
		}
	}
}

// acks is how many there were so far.
func (l *ledger) acks() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.entries {
		n += e.acks
	}
	return n
}

// happened writes down a fault that is not the fleet's.
func (l *ledger) happened(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{At: time.Now(), What: "parent: " + what})
}

// all returns the entries in the order of their publishing, once the run is over.
func (l *ledger) all() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	entries := make([]*entry, len(l.order))
	for i, s := range l.order {
		entries[i] = l.entries[s]
	}
	return entries
}

func consumerOf(queueName string) string {
	for _, consumer := range consumers {
		if queue(consumer) == queueName {
			return consumer
		}
	}
	return ""
}
