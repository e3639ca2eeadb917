package official

import (
	"context"
	"errors"
	"maps"
	"sync"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/internal/wire"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// source is one Subscribe call. Watermill-amqp handles one delivery of it at a time.
type source struct {
	broker    *Broker
	declaring *amqp.Subscriber
	config    brokers.SubscriberConfig
	topic     string

	mu       sync.Mutex
	facts    brokers.Delivery // of the latest delivery, written before its message is handed over
	metadata message.Metadata // without watermill-amqp's additions
}

// Start implements wrapped.Source.
func (s *source) Start(ctx context.Context) (message.Subscriber, <-chan *message.Message, error) {
	declare := builder{s.declaring, exchanges{s.broker.config.Topology.AsIs}}
	dial := &dialer{config: &s.broker.config}
	inner, err := wmamqp.NewSubscriber(s.broker.watermill(dial, s.config.Group, "consuming "+s.config.Group, reader{s}, declare), serial(s.config.Logger))
	if err != nil {
		return nil, nil, unavailable(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	sub := consuming{inner, dial, cancel}
	in, err := inner.Subscribe(ctx, s.topic)
	if err != nil {
		return nil, nil, errors.Join(unavailable(err), sub.Close())
	}
	return sub, in, nil
}

// consuming closes a subscriber that may have no connection: its Close would wait for one, or for
// the end of the context.
type consuming struct {
	*wmamqp.Subscriber

	dial   *dialer
	cancel context.CancelFunc
}

func (c consuming) Close() error {
	closed := make(chan error, 1)
	go func() { closed <- c.Subscriber.Close() }()
	c.cancel()
	defer c.dial.close()
	return <-closed
}

// Read implements wrapped.Source.
func (s *source) Read(from *message.Message) brokers.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.Metadata = s.metadata
	return s.facts
}

// Settle implements wrapped.Source. It returns when watermill-amqp has told the broker, or has lost
// it.
func (s *source) Settle(from *message.Message, answer wrapped.Answer) {
	consume := &s.broker.config.Consume
	switch {
	case answer.Acked:
		from.Ack()
	case answer.Delay(consume.RedeliveryDelay, consume.ConsumerTimeout/4*3, nil):
		from.Nack()
	default:
		return // closing gives the message back
	}
	<-from.Context().Done()
}

// reader is the marshaler of one Subscribe call, and watermill-amqp's only hook that sees the
// delivery. It fails only for an empty delivery.
type reader struct{ source *source }

func (r reader) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	return Marshaler{}.Marshal(msg)
}

func (r reader) Unmarshal(d amqp091.Delivery) (*message.Message, error) {
	if d.Acknowledger == nil {
		return nil, errNothing
	}
	s := r.source
	facts := s.factsOf(&d)
	var msg *message.Message
	msg, facts.Undecodable = wire.Read("amqp/official: Consume.Unmarshal", s.broker.config.Consume.Unmarshal, &d)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts, s.metadata = facts, maps.Clone(msg.Metadata)
	return msg, nil
}

func (s *source) factsOf(d *amqp091.Delivery) brokers.Delivery {
	facts := brokers.Delivery{
		Topic:    s.topic,
		NativeID: d.MessageId,
		Suspect:  d.Redelivered || wire.FromRetry(d, s.broker.queue(s.topic, s.config.Group)),
	}
	if s.broker.Capabilities().DeliveryCount {
		_, all := wire.Counts(d, s.broker.base.Capabilities().FreeGiveBack)
		facts.Count = int(all + 1)
	}
	if s.broker.config.Consume.ProducerTime {
		facts.Time = d.Timestamp
	}
	return facts
}
