package memory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/openset"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Broker is a message broker in memory. It is safe for concurrent use.
type Broker struct {
	config    Config
	id        string // random, so that native ids are unique among brokers
	published atomic.Uint64
	open      context.Context // ended by Close
	end       context.CancelFunc

	mu          sync.Mutex
	topics      map[string]*topic
	subscribers openset.Set[*Subscriber]
}

const pkg = "memory"

var _ brokers.Broker = (*Broker)(nil)

// New returns a broker without messages. The error names every invalid field.
func New(config Config) (*Broker, error) {
	if err := urlquery.Check(pkg, &config, urlquery.InGo, nil); err != nil {
		return nil, err
	}
	field.SetDefaults(&config)
	b := &Broker{config: config, id: watermill.NewShortUUID(), topics: make(map[string]*topic)}
	b.open, b.end = context.WithCancel(context.Background())
	return b, nil
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. The error names every invalid
// field, or wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults(pkg)
	if err != nil {
		return nil, err
	}
	s := &Subscriber{broker: b, config: config}
	if !b.subscribers.Add(s) {
		return nil, errClosed
	}
	return s, nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed.
func (b *Broker) Publisher(brokers.PublisherConfig) (message.Publisher, error) {
	if b.open.Err() != nil {
		return nil, errClosed
	}
	p := &publisher{broker: b}
	p.open, p.end = context.WithCancel(b.open)
	return p, nil
}

// Capabilities describes the broker, which keeps all of it exactly.
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		System:          "memory",
		NativeID:        true,
		Coordinates:     true,
		Key:             b.config.KeyMetadata != "",
		DeliveryCount:   true,
		Time:            true,
		Ordered:         true,
		DeliveryLimit:   brokers.DeliveryLimit{Known: true, Max: b.config.DeliveryLimit},
		FreeGiveBack:    true,
		DelayedGiveBack: true,
		ReplayHorizon:   brokers.ReplayHorizon{Known: true},
	}
}

// Close drops all messages and closes everything that is open, without a drain: contexts of
// unsettled messages end, output channels are closed, waiting publishers get brokers.ErrClosed. It
// may be called again, and always returns nil.
func (b *Broker) Close() error {
	b.mu.Lock()
	b.end()
	topics := b.topics
	b.topics = nil
	b.mu.Unlock()

	// Every intake stops before any delivery is taken back, because otherwise the message would go
	// to the next subscriber.
	subscribers := b.subscribers.Seal()
	for _, s := range subscribers {
		s.stop()
	}
	for _, s := range subscribers {
		s.Abandon()
	}
	for _, t := range topics {
		t.stopTimers()
	}
	return nil
}

var errClosed = fmt.Errorf("memory: broker: %w", brokers.ErrClosed)

// topic returns the topic with that name, and creates it on first use.
func (b *Broker) topic(name string) (*topic, error) {
	if name == "" {
		return nil, errors.New("memory: the topic is empty: name one")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Err() != nil {
		return nil, errClosed
	}
	t := b.topics[name]
	if t == nil {
		t = newTopic(name, b.config)
		b.topics[name] = t
	}
	return t, nil
}
