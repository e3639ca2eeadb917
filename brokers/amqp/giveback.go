package amqp

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/handout"
	"github.com/millpond-go/millpond/internal/pause"
)

// longestRedeliveryDelay is the longest pause between redeliveries.
const longestRedeliveryDelay = time.Second

// giveBack returns a message to the queue: with a nack for "not now", with a reject for a failure,
// which counts towards the limit on every version, or as a delayed copy.
func (d *delivery) giveBack(g brokers.GiveBack) error {
	b := d.subscriber.broker
	spent := d.history.failures + d.counted
	if g.Failed && b.counting() && spent+1 > int64(b.config.Topology.DeliveryLimit) {
		// The queue reaches the limit by itself if it has counted all deliveries.
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
		d.Logger().Error("A message could not be delayed; it is given back at once", err, watermill.LogFields{"delay": after.String()})
	}
	if !d.delayedByServer() {
		// The message returns to the head of its queue, and would be redelivered at once.
		first := b.config.Consume.RedeliveryDelay
		pause.Sleep(d.patient, handout.Delay(brokers.GiveBack{}, int(d.count), first, longestRedeliveryDelay))
	}
	if g.Failed {
		return d.native.Reject(true)
	}
	return d.native.Nack(false, true)
}

// counting reports whether queues have the configuration's delivery limit.
func (b *Broker) counting() bool {
	t := &b.config.Topology
	return t.QueueType == QueueQuorum && !t.AsIs
}

// delayedByServer reports whether the queue delays given-back messages itself.
func (d *delivery) delayedByServer() bool {
	return d.conn.server.telling() && d.subscriber.broker.counting()
}

// serverDelay returns the queue's own delay: the first step for a nack, and for a reject as many
// times that as there were failures, up to the last step.
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

// copyAway publishes a delayed copy. After that the message itself may be acked; a crash in between
// duplicates it.
func (d *delivery) copyAway(failures int64, after time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.subscriber.broker.config.Publish.Timeout)
	defer cancel()
	h := d.history
	h.deliveries, h.failures = max(d.count, h.deliveries+1), failures
	return d.subscriber.broker.publishCopy(ctx, d.queue, d.native, h, after)
}

// waitOn delays again a copy that has passed one step and must wait longer. Nobody has received it,
// so this does not count.
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
		d.Logger().Error("A message that must wait longer is redelivered sooner", err, nil)
		pause.Sleep(d.patient, longestRedeliveryDelay)
		err = d.native.Nack(false, true)
	}
	d.settled(err)
}
