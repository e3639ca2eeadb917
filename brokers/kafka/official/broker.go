package official

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/urlquery"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// Broker is a Kafka cluster. It is safe for concurrent use.
type Broker struct {
	config Config
	client sarama.Client // for Ping
	open   wrapped.Set
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// New connects to the cluster. The error names every invalid field, or says why the cluster cannot
// be used; then it wraps brokers.ErrUnavailable. Sarama ignores contexts: Config.ConnectTimeout
// bounds each request.
func New(_ context.Context, config Config) (*Broker, error) {
	if err := cmp.Or(config.validate(urlquery.InGo), config.authenticate()); err != nil {
		return nil, err
	}
	config.setDefaults()
	client, err := sarama.NewClient(config.Brokers, config.sarama(func(c *sarama.Config) {
		// Errors should be reported soon.
		c.Net.ReadTimeout, c.Net.WriteTimeout, c.Metadata.Timeout = config.ConnectTimeout, config.ConnectTimeout, config.ConnectTimeout
		c.Metadata.Retry.Max = 1
	}))
	if err != nil {
		return nil, config.unreachable(err)
	}
	return &Broker{config: config, client: client, open: wrapped.Set{Package: pkg}}, nil
}

// Ping checks whether the cluster answers. Its error wraps brokers.ErrUnavailable or
// brokers.ErrClosed.
func (b *Broker) Ping(ctx context.Context) error {
	err := wrapped.Ask(ctx, func() error { return b.client.RefreshMetadata() })
	if errors.Is(err, sarama.ErrClosedClient) {
		return b.open.ErrClosed()
	}
	access := b.config.access()
	return access.Answered(err)
}

// Subscriber returns a new subscriber. The error names every invalid field, or wraps
// brokers.ErrClosed. Subscribe does not notice that a topic does not exist: watermill-kafka logs an
// error each second until it does.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	return b.open.Subscriber(config, &wrapped.Subscriber{
		Notice:     "A rebalance stops the whole group until running handlers have ended: kafka:// has no such standstill",
		Initialize: b.makeTopic,
		Source: func(topic string, config brokers.SubscriberConfig) (wrapped.Source, error) {
			return &source{config: &b.config, subscriber: config, topic: topic, claims: make(map[int32]*claim)}, nil
		},
	})
}

// makeTopic creates a topic, if the configuration allows it, and waits until the topic can be used.
func (b *Broker) makeTopic(ctx context.Context, topic string) error {
	p := &b.config.Publish
	if !p.CreateTopics {
		return nil
	}
	inner, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: b.config.Brokers, OverwriteSaramaConfig: b.config.sarama(), WaitForTopicCreationTimeout: b.config.ConnectTimeout,
		InitializeTopicDetails: &sarama.TopicDetail{
			NumPartitions: int32(cmp.Or(p.Partitions, -1)), ReplicationFactor: int16(cmp.Or(p.Replication, -1)), //nolint:gosec // checked; -1 is the broker's
		},
	}, nil)
	if err == nil {
		err = inner.SubscribeInitializeWithContext(ctx, topic)
	}
	if err != nil {
		return fmt.Errorf("%s: topic %q: %w: %w", pkg, topic, brokers.ErrUnavailable, err)
	}
	return nil
}

// Capabilities describes Kafka with watermill-kafka: it has no ids of its own, counts no
// deliveries, and keeps settled messages for each topic's retention, which is not read here.
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		System: "kafka", Coordinates: true, Key: true, Time: b.config.Consume.ProducerTime, Ordered: true,
		DeliveryLimit: brokers.DeliveryLimit{Known: true}, FreeGiveBack: true, DelayedGiveBack: true,
	}
}

// Close closes the open subscribers, as their Close does, and then the publishers, which finish
// their running calls. It may be called again.
func (b *Broker) Close() error {
	b.open.Close()
	if err := b.client.Close(); err != nil && !errors.Is(err, sarama.ErrClosedClient) { // it was already closed
		return fmt.Errorf("%s: closing the client: %w", pkg, err)
	}
	return nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed or
// brokers.ErrUnavailable. Each has its own connections. Publish returns nil when all in-sync
// replicas have each message. Its errors wrap brokers.ErrClosed, brokers.ErrTooLarge or
// brokers.ErrUnencodable if that is the cause, and otherwise brokers.ErrUnavailable, also for a
// topic that does not exist.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	c := &b.config
	marshaler := Marshaler{Key: func(_ string, msg *message.Message) []byte {
		if key, ok := msg.Metadata[c.Publish.KeyMetadata]; ok {
			return []byte(key)
		}
		return nil
	}}
	if c.Publish.Key != nil {
		marshaler.Key = c.Publish.Key
	}
	settings := wmkafka.PublisherConfig{Brokers: c.Brokers, Marshaler: marshaler, OverwriteSaramaConfig: c.producing(), Tracer: c.Tracer}
	inner, err := wmkafka.NewPublisher(settings, config.Logger) // connects
	if err != nil {
		return nil, c.unreachable(err)
	}
	return b.open.Publisher(&wrapped.Publisher{
		Timeout: 30 * time.Second, Logger: config.Logger, Library: inner.Close,
		Check: func(topic string, msg *message.Message) error {
			_, err := marshaler.Marshal(topic, msg)
			return err
		},
		Send: func(_ context.Context, topic string, messages []*message.Message) error {
			return b.explain(topic, inner.Publish(topic, messages...))
		},
	})
}

// explain adds an error's meaning.
func (b *Broker) explain(topic string, err error) error {
	var setting sarama.ConfigurationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &setting), errors.Is(err, sarama.ErrMessageSizeTooLarge):
		return fmt.Errorf("%s: topic %q: %w: %w: publish less, or raise max.message.bytes of the topic and the parameter max_message_bytes (now %d)", pkg, topic, brokers.ErrTooLarge, err, b.config.Publish.MaxBytes)
	default:
		return fmt.Errorf("%s: topic %q: %w: %w", pkg, topic, brokers.ErrUnavailable, err)
	}
}
