package fleet

import (
	"slices"
	"time"
)

func (p *process) free(inFlight int) bool {
	return p.ready && !p.leaving && len(p.outstanding) < inFlight
}

func (p *parent) anyFree() bool {
	for _, m := range p.members {
		if m.proc != nil && m.proc.free(p.InFlight) {
			return true
		}
	}
	return false
}

// dispatch delivers what is due as far as workers are free.
func (p *parent) dispatch() {
	for !p.stopping {
		i := p.next()
		if i < 0 {
			return
		}
		o := p.due[i]
		proc := p.choose(o)
		if proc == nil {
			return
		}
		p.due = slices.Delete(p.due, i, i+1)
		p.deliver(proc, o)
	}
}

// next returns the place of the first that may be delivered now, or -1.
func (p *parent) next() int {
	return slices.IndexFunc(p.due, func(o *owed) bool {
		if !p.Ordered || o.Key == nil {
			return true
		}
		open := p.open[o.unit()]
		return open == nil || open == o
	})
}

// unit is within what the order counts.
func (o *owed) unit() unit { return unit{o.Topic, string(o.Key)} }

type unit struct{ topic, key string }

// choose draws one of the free workers, but not the one that had the message last if
// there is another: duplicates shall race.
func (p *parent) choose(o *owed) *process {
	var free []*process
	var last *process
	for _, m := range p.members {
		switch {
		case m.proc == nil || !m.proc.free(p.InFlight):
		case m.index == o.holder:
			last = m.proc
		default:
			free = append(free, m.proc)
		}
	}
	if len(free) == 0 {
		return last
	}
	return free[p.rng.IntN(len(free))]
}

func (p *parent) deliver(proc *process, o *owed) {
	p.open[o.unit()] = o
	o.count++
	o.holder = proc.index
	p.lastID++
	d := &delivery{id: p.lastID, owed: o, count: o.count, since: time.Now()}
	proc.outstanding[d.id] = d
	p.report.Deliveries++
	proc.outbox.add(toWorker{Deliver: &deliver{
		ID: d.id, Message: o.Message, Number: o.number, Count: o.count, Time: o.taken,
	}})
	p.Observe(Event{Kind: EventDelivered, Worker: proc.index, PID: proc.pid(), Message: o.Message, Count: d.count})
}

func (p *parent) settle(proc *process, s settle) {
	d := proc.outstanding[s.ID]
	if d == nil {
		return
	}
	delete(proc.outstanding, s.ID)
	proc.exits = 0
	if d.expired {
		return
	}
	event := Event{
		Kind: EventAcked, Worker: proc.index, PID: proc.pid(),
		Message: d.owed.Message, Count: d.count, Failed: s.Failed,
	}
	if s.Ack {
		p.held--
		delete(p.open, d.owed.unit())
		p.report.Acks++
		p.Observe(event)
		p.strikeDue()
		return
	}
	event.Kind = EventNacked
	p.report.Nacks++
	p.Observe(event)
	if s.After <= 0 {
		p.again(d.owed)
		return
	}
	p.after(s.After, func() { p.again(d.owed) })
}

// again makes a delivery due once more, unless its message has had all it gets.
func (p *parent) again(o *owed) {
	if p.DeliveryLimit == 0 || o.count < p.DeliveryLimit {
		p.due = append(p.due, o)
		return
	}
	p.held--
	delete(p.open, o.unit())
	p.report.Dropped++
	p.Observe(Event{Kind: EventDropped, Worker: -1, Message: o.Message, Count: o.count})
}

// redeliver makes a delivery due again that its worker will not settle, or not in
// time.
func (p *parent) redeliver(d *delivery) {
	p.report.Redeliveries++
	p.again(d.owed)
}

// expire takes deliveries away from workers that had them for too long. Their places
// stay taken: the worker still works on them.
func (p *parent) expire() {
	for _, m := range p.members {
		if m.proc == nil {
			continue
		}
		for _, d := range m.proc.outstanding {
			if !d.expired && time.Since(d.since) >= p.Visibility {
				d.expired = true
				p.redeliver(d)
			}
		}
	}
	p.after(p.Visibility/4, p.expire)
}
