package official

import (
	"bytes"
	"context"
	"maps"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// delivery is one arrival of a message: watermill-kafka's, which it keeps until we settle
// it, and the copy that a handler gets.
type delivery struct {
	subscription *subscription
	inner        *message.Message
	claim        *claim // nil: it is gone already
	offset       int64
}

func (s *subscription) newDelivery(inner *message.Message) *delivery {
	d := &delivery{subscription: s, inner: inner}
	if partition, ok := wmkafka.MessagePartitionFromCtx(inner.Context()); ok {
		d.claim = s.claim(partition)
	}
	d.offset, _ = wmkafka.MessagePartitionOffsetFromCtx(inner.Context())
	return d
}

func (d *delivery) run() {
	s := d.subscription
	if d.claim == nil {
		return
	}
	wait, cancel := context.WithCancel(s.intake)
	defer cancel()
	defer context.AfterFunc(d.claim.session.Context(), cancel)()
	if s.slots.Acquire(wait, 1) != nil {
		d.leave()
		return
	}
	ctx, msg, end := d.dress()
	select {
	case s.out <- msg:
	case <-wait.Done():
		end()
		s.slots.Release(1)
		d.leave()
		return
	}
	d.settle(ctx, msg, end)
}

// dress makes the message that the handler gets. It shares nothing that a handler may
// change with the one that comes again after a nack.
func (d *delivery) dress() (context.Context, *message.Message, context.CancelFunc) {
	s, values := d.subscription, d.inner.Context()
	facts := brokers.Delivery{
		Topic:       s.topic,
		Coordinates: s.topic + "/" + strconv.Itoa(int(d.claim.partition)) + "/" + strconv.FormatInt(d.offset, 10),
		Suspect:     d.claim.hand(d.offset),
		Undecodable: d.claim.unreadable(),
	}
	facts.Key, _ = wmkafka.MessageKeyFromCtx(values)
	if s.subscriber.broker.config.Consume.ProducerTime {
		facts.Time, _ = wmkafka.MessageTimestampFromCtx(values)
	}
	msg := message.NewMessage(d.inner.UUID, bytes.Clone(d.inner.Payload))
	maps.Copy(msg.Metadata, d.inner.Metadata)
	ctx, cancel := context.WithCancel(values)
	unlink := context.AfterFunc(s.intake, cancel)
	ctx = brokers.WithDelivery(ctx, msg, facts)
	msg.SetContext(ctx)
	return ctx, msg, func() { unlink(); cancel() }
}

// settle waits for the handler's answer and passes it on.
func (d *delivery) settle(ctx context.Context, msg *message.Message, end context.CancelFunc) {
	s := d.subscription
	defer s.slots.Release(1)
	defer end()
	ended, lost := d.claim.ended(), false
	var budget <-chan time.Time
	for {
		select {
		case <-msg.Acked():
			if !lost {
				d.claim.mark(d.offset)
				d.letGo()
			}
			return
		case <-msg.Nacked():
			if !lost {
				// In its own goroutine: what waits to come again takes no slot.
				after := brokers.GiveBackFrom(ctx).After
				s.working.Go(func() { d.comeAgain(after) })
			}
			return
		case <-ended:
			ended, budget = nil, time.After(s.subscriber.broker.config.Consume.RebalanceDrain)
		case <-budget:
			// The slot stays taken until the handler ends, but the group waits no longer.
			budget, lost = nil, true
			s.logger.Info("A message is delivered again: its handler ran longer than a rebalance may wait", watermill.LogFields{
				"message_uuid": msg.UUID, "partition": d.claim.partition, "offset": d.offset,
				"rebalance_drain": s.subscriber.broker.config.Consume.RebalanceDrain.String(),
			})
			end()
			d.letGo()
		case <-s.abandoned:
			return
		}
	}
}

// comeAgain gives the message back to watermill-kafka, which hands it to us again.
func (d *delivery) comeAgain(after time.Duration) {
	if after <= 0 {
		after = d.subscription.subscriber.broker.config.Consume.RedeliveryDelay
	}
	pause := time.NewTimer(after)
	defer pause.Stop()
	select {
	case <-pause.C:
		d.inner.Nack()
	case <-d.claim.ended():
		d.letGo()
	case <-d.subscription.intake.Done():
		d.leave()
	}
}

// leave keeps a message that no handler has begun unsettled, for the next owner of the
// partition, without making a rebalance wait for it.
func (d *delivery) leave() {
	select {
	case <-d.claim.ended():
		d.letGo()
	case <-d.inner.Context().Done(): // the subscriber was closed
	}
}

// letGo ends watermill-kafka's work on the record, and returns when it has. In a session
// that has ended, an ack there marks nothing.
func (d *delivery) letGo() {
	d.inner.Ack()
	<-d.inner.Context().Done()
}
