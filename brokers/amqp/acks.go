package amqp

import (
	"container/list"
	"math"
	"runtime"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// acks writes a session's acks. Each costs a packet, and on a quorum queue an entry in its log. So
// acks that come close together are written together, as one if no older delivery is unsettled.
type acks struct {
	mu        sync.Mutex
	unsettled list.List   // of *delivery, in the order of their tags
	waiting   []*delivery // acked, but not yet written
	writing   bool        // a call of ack is writing, and will write the waiting ones too
}

// deliver notes a delivery to be settled. Call it in the order of the tags.
func (a *acks) deliver(d *delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.place = a.unsettled.PushBack(d)
}

// forget notes that a delivery was settled by something else than an ack. From now on acks of later
// deliveries may include it.
func (a *acks) forget(d *delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsettled.Remove(d.place)
}

// ack writes a delivery's ack, or leaves it to another call of ack, which writes it before it
// returns.
func (a *acks) ack(d *delivery) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.unsettled.Remove(d.place)
	a.waiting = append(a.waiting, d)
	if a.writing {
		return
	}
	a.writing = true
	var spare []*delivery
	for len(a.waiting) > 0 {
		if a.unsettled.Len() > 0 {
			a.mu.Unlock()
			runtime.Gosched() // lets handlers that are about to end do so first
			a.mu.Lock()
		}
		batch, oldest := a.waiting, uint64(math.MaxUint64)
		if first := a.unsettled.Front(); first != nil {
			oldest = first.Value.(*delivery).native.DeliveryTag
		}
		a.waiting = spare
		a.mu.Unlock()
		writeAcks(batch, oldest)
		clear(batch)
		spare = batch[:0]
		a.mu.Lock()
	}
	a.writing = false
}

// writeAcks writes one ack for all deliveries before the oldest unsettled one, and one for each of
// the others.
func writeAcks(batch []*delivery, oldest uint64) {
	var last *delivery
	before := 0
	for _, d := range batch {
		if d.native.DeliveryTag > oldest {
			continue
		}
		before++
		if last == nil || d.native.DeliveryTag > last.native.DeliveryTag {
			last = d
		}
	}
	var reached error
	if last != nil {
		reached = last.native.Ack(before > 1)
	}
	for _, d := range batch {
		err := reached
		if d.native.DeliveryTag > oldest {
			err = d.native.Ack(false)
		}
		d.note(err)
	}
}

// settled notes the result of a nack or reject. If it failed, no ack may ever include this
// delivery.
func (d *delivery) settled(err error) {
	d.note(err)
	if err == nil {
		d.acks.forget(d)
	}
}

// note logs a failed settlement.
func (d *delivery) note(err error) {
	if err != nil {
		d.Logger().Info("A settlement did not reach the broker, so the message is redelivered", watermill.LogFields{
			"message_uuid": d.uuid, "error": err.Error(),
		})
	}
}
