package official

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// source is one Subscribe call, with its own watermill-kafka subscriber, so that it knows its own
// partitions.
type source struct {
	config     *Config
	subscriber brokers.SubscriberConfig
	topic      string

	mu     sync.Mutex
	claims map[int32]*claim // by partition
}

// claim is one partition while a session of the group assigns it here. In a claim, watermill-kafka
// handles one record at a time.
type claim struct {
	session sarama.ConsumerGroupSession
	// end is the partition's end when it was claimed. Earlier records may have been delivered to
	// another member, or to this one in an earlier session.
	end int64

	offset int64 // of the current record
	facts  brokers.Delivery
}

// Start implements wrapped.Source.
func (s *source) Start(ctx context.Context) (message.Subscriber, <-chan *message.Message, error) {
	inner, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers:               s.config.Brokers,
		Unmarshaler:           unmarshaler{s},
		OverwriteSaramaConfig: s.config.consuming(),
		ConsumerGroup:         s.subscriber.Group,
		NackResendSleep:       wmkafka.NoSleep, // the pause is made here, where it can be interrupted
		Tracer:                tracer{s.config.Tracer, s},
	}, s.subscriber.Logger)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", pkg, err)
	}
	in, err := inner.Subscribe(ctx, s.topic)
	if err != nil {
		return nil, nil, s.config.unreachable(err)
	}
	return inner, in, nil
}

// Read implements wrapped.Source.
func (s *source) Read(from *message.Message) brokers.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[partitionOf(from)]
	facts := c.facts
	c.facts.Suspect = true // if it is redelivered
	return facts
}

// Settle implements wrapped.Source. While a rebalance waits for a handler, an ack is committed
// here, because watermill-kafka would forget it, and a nack releases the record.
func (s *source) Settle(from *message.Message, answer wrapped.Answer) {
	s.mu.Lock()
	c := s.claims[partitionOf(from)]
	next := c.offset + 1
	s.mu.Unlock()
	switch {
	case answer.Acked:
		c.session.MarkOffset(s.topic, partitionOf(from), next, "")
		from.Ack()
	case answer.Delay(s.config.Consume.RedeliveryDelay, math.MaxInt64, c.session.Context().Done()):
		from.Nack()
	case c.session.Context().Err() != nil:
		from.Ack() // marks nothing any more
	}
}

func partitionOf(from *message.Message) int32 {
	partition, _ := wmkafka.MessagePartitionFromCtx(from.Context())
	return partition
}

// unmarshaler never fails: after an error watermill-kafka would never deliver the record, and would
// repeat it for ever.
type unmarshaler struct{ source *source }

func (u unmarshaler) Unmarshal(record *sarama.ConsumerMessage) (msg *message.Message, _ error) {
	facts := brokers.Delivery{
		Topic: record.Topic, Key: record.Key,
		Coordinates: record.Topic + "/" + strconv.Itoa(int(record.Partition)) + "/" + strconv.FormatInt(record.Offset, 10),
	}
	if u.source.config.Consume.ProducerTime {
		facts.Time = record.Timestamp
	}
	var custom func(*sarama.ConsumerMessage) (*message.Message, error)
	if u.source.config.Consume.Unmarshaler != nil {
		custom = u.source.config.Consume.Unmarshaler.Unmarshal
	}
	msg, facts.Undecodable = callback.Read(pkg+": Consume.Unmarshaler", custom, record, Marshaler{}.Unmarshal)
	u.source.mu.Lock()
	defer u.source.mu.Unlock()
	c := u.source.claims[record.Partition]
	facts.Suspect = record.Offset < c.end
	c.offset, c.facts = record.Offset, facts
	return msg, nil
}

// tracer is watermill-kafka's only hook into its consumer group. It observes the claims, and passes
// everything on to the configuration's tracer.
type tracer struct {
	wmkafka.SaramaTracer // may be nil: a subscriber with a group calls no other method

	source *source
}

func (t tracer) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	if t.SaramaTracer != nil {
		h = t.SaramaTracer.WrapConsumerGroupHandler(h)
	}
	return handler{h, t.source}
}

type handler struct {
	sarama.ConsumerGroupHandler

	source *source
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, of sarama.ConsumerGroupClaim) error {
	h.source.mu.Lock()
	h.source.claims[of.Partition()] = &claim{session: session, end: of.HighWaterMarkOffset()}
	h.source.mu.Unlock()
	return h.ConsumerGroupHandler.ConsumeClaim(session, of)
}
