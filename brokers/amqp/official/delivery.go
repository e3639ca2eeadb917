package official

import (
	"context"
	"maps"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/callback"
)

// arrival is what a delivery says beside its message, which watermill-amqp forgets.
type arrival struct {
	facts    brokers.Delivery
	metadata message.Metadata
}

// reader is the marshaler of one subscription, the place where watermill-amqp lets others
// see the delivery. It fails for nothing but a delivery that is none.
type reader struct{ subscription *subscription }

func (r reader) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	return Marshaler{}.Marshal(msg)
}

func (r reader) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil {
		return nil, errNothing
	}
	s := r.subscription
	config := &s.subscriber.broker.config.Consume
	facts := s.facts(&d)
	var msg *message.Message
	if config.Unmarshal != nil {
		handed := d
		handed.Acknowledger = nil
		msg, facts.Undecodable = callback.Read("amqp/official: Consume.Unmarshal", config.Unmarshal, &handed)
	}
	if msg == nil {
		msg = wire.Message(d.Headers, d.Body)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = arrival{facts, maps.Clone(msg.Metadata)} // without what watermill-amqp adds
	return msg, nil
}

func (s *subscription) facts(d *amqp091.Delivery) brokers.Delivery {
	facts := brokers.Delivery{
		Topic:    s.topic,
		NativeID: d.MessageId,
		Suspect:  d.Redelivered || wire.FromRetry(d, s.subscriber.broker.queue(s.topic, s.subscriber.config.Group)),
	}
	broker := s.subscriber.broker
	if broker.Capabilities().DeliveryCount {
		_, all := wire.Counts(d, broker.base.Capabilities().FreeGiveBack)
		facts.Count = int(all + 1)
	}
	if broker.config.Consume.ProducerTime {
		facts.Time = d.Timestamp
	}
	return facts
}

// deliver hands a message out and passes its settlement on. It returns when the message
// is settled, or will be given back by the end of the subscription.
func (s *subscription) deliver(inner *message.Message) {
	s.mu.Lock()
	arrived := s.last
	s.mu.Unlock()
	msg := message.NewMessage(inner.UUID, inner.Payload)
	msg.Metadata = arrived.metadata
	ctx, cancel := context.WithCancel(s.values)
	defer cancel()
	defer context.AfterFunc(s.intake, cancel)()
	ctx = brokers.WithDelivery(ctx, msg, arrived.facts)
	msg.SetContext(ctx)
	select {
	case s.out <- msg:
	case <-s.intake.Done():
		return
	}
	var drained <-chan time.Time
	intake := s.intake.Done()
	for {
		select {
		case <-msg.Acked():
			inner.Ack()
			<-inner.Context().Done() // watermill-amqp has told the broker, or has lost it
			return
		case <-msg.Nacked():
			if s.pause(brokers.GiveBackFrom(ctx).After) {
				inner.Nack()
				<-inner.Context().Done()
			}
			return
		case <-intake:
			intake = nil
			timer := time.NewTimer(s.subscriber.config.DrainTimeout)
			defer timer.Stop()
			drained = timer.C
		case <-drained:
			s.logger.Info("A message is delivered again: it was not settled in time", watermill.LogFields{
				"message_uuid": msg.UUID, "drain_timeout": s.subscriber.config.DrainTimeout.String(),
			})
			return
		}
	}
}

// pause keeps a nacked message. It reports false if the intake has ended before.
func (s *subscription) pause(after time.Duration) bool {
	config := &s.subscriber.broker.config.Consume
	if after <= 0 {
		after = config.RedeliveryDelay
	}
	timer := time.NewTimer(min(after, config.ConsumerTimeout/4*3))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.intake.Done():
		return false
	}
}

var _ wmamqp.Marshaler = reader{}
