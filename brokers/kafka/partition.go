package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// partition is one partition while it is assigned. Its workers deliver and settle its messages.
type partition struct {
	session *session
	id      int32
	workers int

	open   context.Context // ended by stop: no further delivery
	close  context.CancelFunc
	kept   context.Context // ended by giveUp: settlements no longer count
	giveUp context.CancelFunc
	idle   chan struct{} // closed when the last worker has ended

	mu       sync.Mutex
	changed  sync.Cond // a message may be available
	backlog  backlog
	appetite appetite
}

func newPartition(s *session, id int32) *partition {
	p := &partition{
		session: s, id: id, workers: min(s.config().InFlightPerPartition, s.subscriber.config.InFlight), idle: make(chan struct{}),
	}
	p.open, p.close = context.WithCancel(context.Background())
	p.kept, p.giveUp = context.WithCancel(context.Background())
	p.changed.L = &p.mu
	p.backlog.init(s.config(), p.workers)
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

func (p *partition) stopped() bool { return p.open.Err() != nil }

// ended reports whether nothing runs, or will run.
func (p *partition) ended() bool {
	select {
	case <-p.idle:
		return true
	default:
		return false
	}
}

// add adds fetched records.
func (p *partition) add(records []*kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped() {
		return
	}
	p.backlog.add(records)
	p.changed.Broadcast()
}

func (p *partition) truncate(from int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.truncate(from)
}

// take waits for the next message to deliver. It returns nil when there will be none.
func (p *partition) take() *item {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.stopped() {
		if !p.backlog.handover.held {
			it := p.backlog.next()
			p.eaten()
			if it != nil {
				p.wakeOther()
				return it
			}
		}
		p.changed.Wait()
	}
	return nil
}

// wakeOther lets another worker take a message that may also begin: one settlement can free many
// messages that waited for the commit distance.
func (p *partition) wakeOther() {
	if p.workers > 1 && p.backlog.mayBegin() {
		p.changed.Signal()
	}
}

// settled notes that a message needs no further delivery.
func (p *partition) settled(it *item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backlog.settle(it)
	if p.workers > 1 { // a single worker checks by itself
		p.changed.Signal()
	}
}

// again makes a message ready for another delivery after a delay. Meanwhile it keeps its place in
// the order.
func (p *partition) again(it *item, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped() {
		return
	}
	it.timer = time.AfterFunc(delay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.backlog.ready = append(p.backlog.ready, it)
		p.changed.Signal()
	})
}

// unsettled returns how many messages have begun and are not settled.
func (p *partition) unsettled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.backlog.offsets.unsettled())
}

// stop ends the delivery. Running messages may still be settled.
func (p *partition) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped() {
		return
	}
	p.close()
	p.changed.Broadcast()
	p.backlog.drop()
	p.unpause() // the client keeps a pause after the assignment ends
	p.session.intake.poke()
}

// stopNow stops and gives up, without waiting.
func (p *partition) stopNow() {
	p.stop()
	p.giveUp()
}
