package amqp

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/pause"
)

// longestRedeliveryDelay is where the pauses between redeliveries stop growing.
const longestRedeliveryDelay = time.Second

// giveBack returns a message to the queue: by nack for "not now", by reject for a failure,
// which counts towards the limit on every version, or by a copy that comes later.
func (d *delivery) giveBack(g brokers.GiveBack) error {
	b := d.subscriber.broker
	spent := d.history.failures + d.counted
	if g.Failed && b.counting() && spent+1 > int64(b.config.Topology.DeliveryLimit) {
		// The queue finds out by itself, if all deliveries have been its own.
		return d.native.Reject(d.history.failures == 0)
	}
	if after := g.After; after > d.serverDelay(g.Failed) {
		if g.Failed {
			spent++
		}
		err := d.copyAway(spent, after)
		if err == nil {
			return d.native.Ack(false)
		}
		d.Logger().Error("A message could not be put aside for later; it is given back at once", err, watermill.LogFields{"delay": after.String()})
	}
	if !d.delayedByServer() {
		// It goes back to the head of its queue, from where it comes again at once.
		first := b.config.Consume.RedeliveryDelay
		pause.Sleep(d.patient, handout.Delay(brokers.GiveBack{}, int(d.count), first, longestRedeliveryDelay))
	}
	if g.Failed {
		return d.native.Reject(true)
	}
	return d.native.Nack(false, true)
}

// counting reports whether queues have the limit that we have declared.
func (b *Broker) counting() bool {
	t := &b.config.Topology
	return t.QueueType == QueueQuorum && !t.AsIs
}

// delayedByServer reports whether the queue delays what it gets back.
func (d *delivery) delayedByServer() bool {
	return d.conn.server.telling() && d.subscriber.broker.counting()
}

// serverDelay is the delay that the queue makes by itself: the first step for a nack,
// as many as there were failures for a reject.
func (d *delivery) serverDelay(failed bool) time.Duration {
	if !d.delayedByServer() {
		return 0
	}
	steps := d.subscriber.broker.config.Consume.RetryDelays
	if !failed {
		return steps[0]
	}
	return min(steps[0]*time.Duration(d.counted+1), steps[len(steps)-1])
}

// copyAway publishes a copy that comes back after a delay. The message itself may then be
// acked; a crash in between doubles it.
func (d *delivery) copyAway(failures int64, after time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.subscriber.broker.config.Publish.Timeout)
	defer cancel()
	h := d.history
	h.deliveries, h.failures = max(d.count, h.deliveries+1), failures
	return d.subscriber.broker.publishCopy(ctx, d.queue, d.native, h, after)
}

// waitOn puts a copy away again that has come by one step and has more to wait. Nobody has
// seen it, so it counts nothing.
func (d *delivery) waitOn() {
	ctx, cancel := context.WithTimeout(context.Background(), d.subscriber.broker.config.Publish.Timeout)
	defer cancel()
	h := d.history
	h.failures += d.counted
	err := d.subscriber.broker.publishCopy(ctx, d.queue, d.native, h, h.wait)
	if err == nil {
		err = d.native.Ack(false)
	}
	if err != nil {
		d.Logger().Error("A message that has to wait longer comes again sooner", err, nil)
		pause.Sleep(d.patient, longestRedeliveryDelay)
		err = d.native.Nack(false, true)
	}
	d.settled(err)
}
