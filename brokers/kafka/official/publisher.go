package official

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// publisher guards watermill-kafka's, which must not be closed while it publishes.
type publisher struct {
	broker *Broker
	inner  *wmkafka.Publisher

	mu     sync.RWMutex
	closed bool
}

func newPublisher(b *Broker, config brokers.PublisherConfig) (*publisher, error) {
	c := &b.config
	marshaler := Marshaler{Key: c.Publish.Key}
	if name := c.Publish.KeyMetadata; marshaler.Key == nil && name != "" {
		marshaler.Key = func(_ string, msg *message.Message) []byte {
			if key, ok := msg.Metadata[name]; ok {
				return []byte(key)
			}
			return nil
		}
	}
	inner, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{
		Brokers:               c.Brokers,
		Marshaler:             marshaler,
		OverwriteSaramaConfig: c.adjusted(c.producing()),
		Tracer:                c.Tracer,
	}, config.Logger)
	if err != nil {
		return nil, c.unreachable(err)
	}
	return &publisher{broker: b, inner: inner}, nil
}

// Publish sends the messages one after the other and returns nil when all replicas in
// sync have each. After an error the messages before the one at fault were sent, and
// that one may have been. Errors wrap brokers.ErrClosed, brokers.ErrUnavailable or
// ErrNoTopic where that is the cause.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return fmt.Errorf("kafka/official: publisher: %w", brokers.ErrClosed)
	}
	if len(messages) == 0 {
		return nil
	}
	if err := p.broker.ensureTopic(messages[0].Context(), topic, 0); err != nil {
		if errors.Is(err, sarama.ErrClosedClient) {
			return fmt.Errorf("kafka/official: broker: %w", brokers.ErrClosed)
		}
		return err
	}
	if err := p.inner.Publish(topic, messages...); err != nil {
		return p.explain(topic, err)
	}
	return nil
}

func (p *publisher) explain(topic string, err error) error {
	var (
		setting sarama.ConfigurationError
		network net.Error
	)
	switch {
	case errors.As(err, &setting), errors.Is(err, sarama.ErrMessageSizeTooLarge):
		return fmt.Errorf("kafka/official: topic %q: %w: %w: publish less, or raise max.message.bytes of the topic and the parameter max_message_bytes (now %d)", topic, brokers.ErrTooLarge, err, p.broker.config.Publish.MaxBytes)
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition):
		p.broker.topics.Delete(topic) // ask again
		return fmt.Errorf("%w: %q: it was deleted: %w", ErrNoTopic, topic, err)
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), anyOf(err,
		sarama.ErrOutOfBrokers, sarama.ErrNotConnected, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrClosedClient,
		sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend):
		return fmt.Errorf("kafka/official: topic %q: %w: %w", topic, brokers.ErrUnavailable, err)
	default:
		return fmt.Errorf("kafka/official: topic %q: %w", topic, err)
	}
}

func anyOf(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// Close waits for what is being published, and ends the publisher. It may be called
// many times.
func (p *publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	defer p.broker.publishers.Remove(p)
	if err := p.inner.Close(); err != nil {
		return fmt.Errorf("kafka/official: %w", err)
	}
	return nil
}
