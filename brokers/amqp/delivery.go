package amqp

import (
	"container/list"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/handout"
)

// delivery is one message in flight. It is settled once, on its own channel.
type delivery struct {
	*session

	native  *amqp091.Delivery
	uuid    string
	place   *list.Element // its place in acks.unsettled
	history history
	retried bool  // it comes from one of our retry queues
	counted int64 // deliveries before this one that the queue counted towards its limit
	count   int64 // deliveries including this one; 0: not counted
}

// handOut gives a message to the subscriber, and settles it when the subscriber is done. A message
// that nobody receives has not begun; it is given back when the session drains.
func (s *session) handOut(native *amqp091.Delivery) {
	d := &delivery{session: s, native: native}
	d.read()
	s.acks.deliver(d)
	if d.history.wait > 0 {
		s.running.Go(d.waitOn)
		return
	}
	msg, facts := d.message()
	d.uuid = msg.UUID
	h := s.Handout(msg, facts)
	h.Withdrawn, h.Lost = s.kept.Done(), s.kept.Done()
	if !h.Offer() {
		s.unbegun = append(s.unbegun, native)
		return
	}
	s.running.Go(func() { d.settle(h.Await()) })
}

// settle tells the broker the message's result.
func (d *delivery) settle(fate handout.Fate, giveBack brokers.GiveBack) {
	switch fate {
	case handout.Acked:
		d.acks.ack(d)
	case handout.Nacked:
		d.settled(d.giveBack(giveBack))
	case handout.Unbegun, handout.Abandoned:
	}
}

// read reads the message and its history from the wire.
func (d *delivery) read() {
	var all int64
	d.counted, all = wire.Counts(d.native, d.conn.server.telling())
	d.retried = wire.FromRetry(d.native, d.queue)
	d.history = takeHistory(d.native, d.queue)
	if d.subscriber.broker.counting() {
		d.count = d.history.deliveries + all + 1
	}
}

// message returns the message, and the facts of its delivery.
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
	var msg *message.Message
	msg, facts.Undecodable = wire.Read("amqp: Consume.Unmarshal", config.Unmarshal, n)
	return msg, facts
}

// ReadDelivery returns the message of any producer's delivery, in watermill-amqp's wire format. It
// is for a Consume.Unmarshal that handles only some messages itself. The message shares the body.
func ReadDelivery(d *amqp091.Delivery) *message.Message { return wire.Message(d.Headers, d.Body) }
