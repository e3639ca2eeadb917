package amqp

import (
	"container/list"
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
)

// delivery is one message in flight. It is settled once, on the channel that it came by.
type delivery struct {
	*session

	native  *amqp091.Delivery
	uuid    string
	place   *list.Element // among those that are unsettled
	history history
	retried bool  // it comes from a retry queue of ours
	counted int64 // by the queue, towards its limit, before this delivery
	count   int64 // deliveries by now; 0 if nobody counts
}

// handOut gives a message to the subscriber and lets it be settled in its own time. What
// nobody receives is not begun, and given back when the session drains.
func (s *session) handOut(ctx context.Context, native *amqp091.Delivery) {
	d := &delivery{session: s, native: native}
	d.read()
	s.acks.deliver(d)
	if d.history.wait > 0 {
		s.running.Go(d.waitOn)
		return
	}
	inner, cancel := context.WithCancel(s.ctx)
	msg, facts := d.message()
	inner = brokers.WithDelivery(inner, msg, facts)
	msg.SetContext(inner)
	d.uuid = msg.UUID
	if ctx.Err() == nil { // it may be over already, and select is fair
		select {
		case s.out <- msg:
			s.running.Go(func() { d.await(inner, msg, cancel) })
			return
		case <-s.lost:
		case <-ctx.Done():
		}
	}
	cancel()
	s.unbegun = append(s.unbegun, native)
}

// read takes apart what came from the wire.
func (d *delivery) read() {
	var all int64
	d.counted, all = wire.Counts(d.native, d.conn.server.telling())
	d.retried = wire.FromRetry(d.native, d.queue)
	d.history = takeHistory(d.native, d.queue)
	if d.subscriber.broker.counting() {
		d.count = d.history.deliveries + all + 1
	}
}

// message returns the message, and what is known about its delivery.
func (d *delivery) message() (*message.Message, brokers.Delivery) {
	config := &d.subscriber.broker.config.Consume
	n := d.native
	facts := brokers.Delivery{
		Topic:    d.topic,
		NativeID: n.MessageId,
		Count:    int(d.count),
		Suspect:  n.Redelivered || d.counted > 0 || d.count > 1 || d.retried,
	}
	if config.ProducerTime {
		facts.Time = n.Timestamp
	}
	if config.Unmarshal != nil {
		handed := *n
		handed.Acknowledger = nil
		msg, err := callback.Read("amqp: Consume.Unmarshal", config.Unmarshal, &handed)
		if err == nil {
			return msg, facts
		}
		facts.Undecodable = err
	}
	return wire.Message(n.Headers, n.Body), facts
}

// ReadDelivery returns the message of a delivery of any producer, in the wire format of
// watermill-amqp. It is for a Consume.Unmarshal that treats only some messages itself.
func ReadDelivery(d *amqp091.Delivery) *message.Message { return wire.Message(d.Headers, d.Body) }

// await waits until the message is settled, and settles it with the broker. The context
// of the message ends with it.
func (d *delivery) await(ctx context.Context, msg *message.Message, cancel context.CancelFunc) {
	defer cancel()
	select {
	case <-msg.Acked():
		cancel() // writing may take long, of other messages' acks too
		d.acks.ack(d)
	case <-msg.Nacked():
		d.settled(d.giveBack(brokers.GiveBackFrom(ctx)))
	case <-d.lost:
	}
}

// sleep pauses before a message is given back. It ends early with the session.
func (d *delivery) sleep(pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.stopping:
	case <-d.lost:
	}
}
