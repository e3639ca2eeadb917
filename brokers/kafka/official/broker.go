package official

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
)

// Broker is a Kafka cluster. It is safe for concurrent use.
type Broker struct {
	config Config
	client sarama.Client // asks for topics, and makes them
	topics sync.Map      // names of topics that are known to exist

	subscribers openset.Set[*Subscriber]
	publishers  openset.Set[*publisher]

	// laid, if not nil, hears of the connections of each Subscribe call. Tests cut them.
	laid func(*Subscriber, *wires)
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// New connects to the cluster. It returns an error that names every invalid field, or
// one that says why the cluster cannot be used, at the latest after
// Config.ConnectTimeout; the latter wraps brokers.ErrUnavailable.
func New(ctx context.Context, config Config) (*Broker, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	if err := config.authenticate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	client, err := config.connect(ctx)
	if err != nil {
		return nil, err
	}
	return &Broker{config: config, client: client}, nil
}

// Ping asks the cluster whether it answers. Its error wraps brokers.ErrUnavailable, or
// brokers.ErrClosed.
func (b *Broker) Ping(ctx context.Context) error {
	// With one topic the answer is short, with none it names all.
	var topics []string
	b.topics.Range(func(topic, _ any) bool {
		topics = append(topics, topic.(string))
		return false
	})
	answer := make(chan error, 1)
	go func() { answer <- b.client.RefreshMetadata(topics...) }() // which knows no context
	var err error
	select {
	case err = <-answer:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, sarama.ErrClosedClient):
		return fmt.Errorf("kafka/official: broker: %w", brokers.ErrClosed)
	case errors.Is(err, sarama.ErrUnknownTopicOrPartition), errors.Is(err, sarama.ErrLeaderNotAvailable):
		return nil // it has answered
	}
	access := b.config.access()
	return access.Answered(err)
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. It returns an error
// that names every invalid field, or one that wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults(pkg)
	if err != nil {
		return nil, err
	}
	b.warn(config.Logger)
	s := newSubscriber(b, config)
	if !b.subscribers.Add(s) {
		return nil, fmt.Errorf("kafka/official: broker: %w", brokers.ErrClosed)
	}
	return s, nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed. Each has
// connections of its own.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	b.warn(config.Logger)
	p, err := newPublisher(b, config) // connects
	if err != nil {
		return nil, err
	}
	if !b.publishers.Add(p) {
		go func() { _ = p.Close() }() // it has nothing to lose
		return nil, fmt.Errorf("kafka/official: broker: %w", brokers.ErrClosed)
	}
	return p, nil
}

// warn says what cannot be known to be a mistake: other mechanisms come with
// Config.Sarama.
func (b *Broker) warn(logger watermill.LoggerAdapter) {
	access := b.config.access()
	if unused := access.Unused(); unused != "" && b.config.Sarama == nil {
		logger.Info("Credentials are not used", watermill.LogFields{"fix": unused})
	}
}

// Capabilities says what Kafka does under watermill-kafka. It has no ids of its own,
// counts no deliveries and keeps settled messages as long as each topic's retention says,
// which is not read here.
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		System:          "kafka",
		Coordinates:     true,
		Time:            b.config.Consume.ProducerTime,
		Ordered:         true,
		DeliveryLimit:   brokers.DeliveryLimit{Known: true},
		FreeGiveBack:    true,
		DelayedGiveBack: true,
	}
}

// Close closes the subscribers that are open, as Subscriber.Close does, and then the
// publishers, which finish what they are publishing. It may be called many times.
func (b *Broker) Close() error {
	_ = b.subscribers.Close() // never fails
	err := b.publishers.Close()
	if closeErr := b.client.Close(); closeErr != nil && !errors.Is(closeErr, sarama.ErrClosedClient) { // it was before
		err = errors.Join(err, fmt.Errorf("kafka/official: closing the client: %w", closeErr))
	}
	return err
}
