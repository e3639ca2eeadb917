package official

import (
	"sync"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/callback"
)

// claim is one partition for as long as a session of the group gives it to us. Within it
// watermill-kafka works on one record at a time.
type claim struct {
	session   sarama.ConsumerGroupSession
	topic     string
	partition int32
	// end is where the partition ended when it was claimed. What comes before may have
	// been with another member, or with this one in an earlier session.
	end int64

	mu          sync.Mutex
	undecodable error // of the record in work
	last        int64 // the last offset that was handed out
}

// ended is closed when the group shares its partitions anew, or has thrown us out. Until
// watermill-kafka lets go of the record in work, the group waits.
func (c *claim) ended() <-chan struct{} { return c.session.Context().Done() }

// mark says that everything up to the offset is settled. It also works in a session that
// has ended, as long as the record is in work.
func (c *claim) mark(offset int64) {
	c.session.MarkOffset(c.topic, c.partition, offset+1, "")
}

// hand notes that the record at offset is handed out, and reports whether that may not
// be for the first time.
func (c *claim) hand(offset int64) (suspect bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	suspect = offset < c.end || offset == c.last
	c.last = offset
	return suspect
}

func (c *claim) unreadable() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.undecodable
}

// unmarshaler never fails, because then watermill-kafka would give the record to nobody,
// and try it again for ever.
type unmarshaler struct{ subscription *subscription }

func (u unmarshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	var (
		msg *message.Message
		err error
	)
	if custom := u.subscription.subscriber.broker.config.Consume.Unmarshaler; custom != nil {
		msg, err = callback.Read("kafka/official: Consume.Unmarshaler", custom.Unmarshal, record)
	}
	if msg == nil {
		msg, _ = Marshaler{}.Unmarshal(record) // never fails
	}
	if c := u.subscription.claim(record.Partition); c != nil {
		c.mu.Lock()
		c.undecodable = err
		c.mu.Unlock()
	}
	return msg, nil
}

// tracer is the place where watermill-kafka lets others into its consumer group. It sees
// the claims, and passes everything on to the tracer of the configuration.
type tracer struct {
	subscription *subscription
	next         wmkafka.SaramaTracer // may be nil
}

func (t tracer) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	if t.next != nil {
		h = t.next.WrapConsumerGroupHandler(h)
	}
	return handler{h, t.subscription}
}

// The others are for subscribers without a group, and for publishers.
func (t tracer) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }

func (t tracer) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer { return c }

func (t tracer) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}

type handler struct {
	sarama.ConsumerGroupHandler
	subscription *subscription
}

func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, of sarama.ConsumerGroupClaim) error {
	c := &claim{session: session, topic: of.Topic(), partition: of.Partition(), end: of.HighWaterMarkOffset(), last: -1}
	h.subscription.begin(c)
	defer h.subscription.end(c)
	return h.ConsumerGroupHandler.ConsumeClaim(session, of)
}
