package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Broker is a Kafka cluster. It is safe for concurrent use.
type Broker struct {
	config Config
	client *kgo.Client  // the client that admin uses
	admin  *kadm.Client // reads topics and their settings

	mu        sync.Mutex
	closing   sync.Once
	producer  *kgo.Client // shared by all publishers, opened with the first
	published sync.Map    // published topics, with their largest batch: 0 if unknown

	subscribers openset.Set[*Subscriber]

	// options, if not nil, adds to the clients of a subscriber. Tests use it to cut connections.
	options func(*Subscriber) []kgo.Opt
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// New connects to the cluster. The error names every invalid field, or says why the cluster cannot
// be used; then it wraps brokers.ErrUnavailable and comes within Config.ConnectTimeout.
func New(ctx context.Context, config Config) (*Broker, error) {
	if err := config.validate(urlquery.InGo); err != nil {
		return nil, err
	}
	if err := config.authenticate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	client, err := config.client(watermill.NopLogger{}, config.asking()...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout)
	defer cancel()
	if err := ping(ctx, client); err != nil {
		go client.Close()
		return nil, config.unreachable(err)
	}
	return &Broker{config: config, client: client, admin: kadm.NewClient(client)}, nil
}

// ping checks whether a broker answers. For one that accepts the connection and stays silent, the
// client would wait longer than ctx.
func ping(ctx context.Context, client *kgo.Client) error {
	answer := make(chan error, 1)
	go func() { answer <- client.Ping(ctx) }()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Ping checks whether the cluster answers. Its error wraps brokers.ErrUnavailable or
// brokers.ErrClosed.
func (b *Broker) Ping(ctx context.Context) error {
	err := ping(ctx, b.client)
	if errors.Is(err, kgo.ErrClientClosed) {
		return fmt.Errorf("kafka: broker: %w", brokers.ErrClosed)
	}
	return b.config.access().Answered(err)
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. The error names every invalid
// field, or wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults(pkg)
	if err != nil {
		return nil, err
	}
	b.warn(config.Logger)
	s := &Subscriber{broker: b, config: config}
	if !b.subscribers.Add(s) {
		return nil, fmt.Errorf("kafka: broker: %w", brokers.ErrClosed)
	}
	return s, nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed. All publishers of a
// Broker share its connections, and the logger of the first.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	b.warn(config.Logger)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subscribers.Closed() {
		return nil, fmt.Errorf("kafka: broker: %w", brokers.ErrClosed)
	}
	if b.producer == nil {
		producer, err := b.config.client(config.Logger, b.producing()...)
		if err != nil {
			return nil, err
		}
		b.producer = producer
	}
	return newPublisher(b), nil
}

// warn logs settings that may be a mistake; options may add other mechanisms.
func (b *Broker) warn(logger watermill.LoggerAdapter) {
	if unused := b.config.access().Unused(); unused != "" && len(b.config.Options) == 0 {
		logger.Info("Credentials are not used", watermill.LogFields{"fix": unused})
	}
}

// Capabilities describes Kafka: it has no ids of its own, counts no deliveries, and keeps settled
// messages for each topic's retention, which is not read here.
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		System:          "kafka",
		Coordinates:     true,
		Key:             true,
		Time:            b.config.Consume.ProducerTime,
		Ordered:         true,
		DeliveryLimit:   brokers.DeliveryLimit{Known: true},
		FreeGiveBack:    true,
		DelayedGiveBack: true,
	}
}

// Close closes the open subscribers, as Subscriber.Close does, and ends publishing: running calls
// fail with brokers.ErrClosed. It may be called again, and always returns nil.
func (b *Broker) Close() error {
	_ = b.subscribers.Close() // never fails
	b.closing.Do(func() {
		b.mu.Lock()
		producer := b.producer
		b.mu.Unlock()
		if producer != nil {
			producer.Close()
		}
		b.admin.Close()
	})
	return nil
}
