package amqp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Broker is a RabbitMQ broker. It is safe for concurrent use.
type Broker struct {
	config      Config
	credentials amqp091.Authentication
	publishing  *link  // for all publishers, and for retries
	server      server // the server, as it was when the broker was opened
	frame       int    // the server's largest frame in bytes; 0: no limit

	opening chan struct{} // full while a caller opens a pipe or declares with one

	mu       sync.Mutex
	present  *pipe                // the pipe for publishing
	tooLarge int                  // a payload of this size was refused; 0: none so far
	young    map[string]time.Time // queues that were just created, and until when that matters

	subscribers openset.Set[*Subscriber]

	// tap, if not nil, sits between the client and the network. Tests use it to cut connections.
	tap func(l *link, conn net.Conn) net.Conn
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// New connects to the broker. The error names every invalid field, or says why the broker cannot be
// used; then it wraps brokers.ErrUnavailable and comes within Config.ConnectTimeout.
func New(ctx context.Context, config Config) (*Broker, error) {
	return connect(ctx, config, nil)
}

func connect(ctx context.Context, config Config, tap func(*link, net.Conn) net.Conn) (*Broker, error) {
	if err := config.validate(urlquery.InGo); err != nil {
		return nil, err
	}
	config.setDefaults()
	b := &Broker{credentials: config.authenticate(), young: make(map[string]time.Time), opening: make(chan struct{}, 1), tap: tap}
	b.config = config
	b.publishing = newLink(b, "publishing")
	conn, err := b.publishing.connect(ctx)
	if err != nil {
		return nil, err
	}
	b.server, b.frame = conn.server, conn.Config.FrameSize
	return b, nil
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. The error names every invalid
// field, or wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults(pkg)
	if config.InFlight > math.MaxUint16 {
		err = errors.Join(err, fmt.Errorf("amqp: SubscriberConfig.InFlight is %d: use a number up to %d, or 0 for 1", config.InFlight, math.MaxUint16))
	}
	if err != nil {
		return nil, err
	}
	s := &Subscriber{broker: b, config: config, consuming: newLink(b, "consuming "+config.Group)}
	if !b.subscribers.Add(s) {
		return nil, fmt.Errorf("amqp: broker: %w", brokers.ErrClosed)
	}
	config.Logger.Info("Given-back messages are treated as the broker's version allows", watermill.LogFields{
		"server": b.server.String(), "behaviour": b.server.behaviour(&b.config.Topology),
	})
	return s, nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed. All
// publishers of a Broker share one connection.
func (b *Broker) Publisher(brokers.PublisherConfig) (message.Publisher, error) {
	if b.subscribers.Closed() {
		return nil, fmt.Errorf("amqp: broker: %w", brokers.ErrClosed)
	}
	return newPublisher(b), nil
}

// Ping checks whether the broker answers, on the publishers' connection, which it restores if it
// was lost. A broker that blocks publishers does not answer. The error wraps brokers.ErrUnavailable
// or brokers.ErrClosed.
func (b *Broker) Ping(ctx context.Context) error {
	conn, err := b.publishing.connect(ctx)
	if err != nil {
		return err
	}
	if conn.blockedBy() != "" { // it would answer only once it is no longer blocked
		return fmt.Errorf("amqp: %w: %w", brokers.ErrUnavailable, blocked(conn))
	}
	err = b.ask(ctx, conn, func() error {
		channel, err := conn.Channel()
		if err == nil {
			err = channel.Close()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("amqp: %w: %w", brokers.ErrUnavailable, err)
	}
	return nil
}

// ask sends a question to the server, and waits for the answer until ctx ends.
func (b *Broker) ask(ctx context.Context, conn *connection, question func() error) error {
	answer := make(chan error, 1)
	go func() {
		defer b.impatient(conn)()
		answer <- question()
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return b.silent(ctx, conn)
	}
}

// Capabilities describes the server, by its version when the broker was opened and by the
// declarations. A policy on the server may differ, and cannot be read.
func (b *Broker) Capabilities() brokers.Capabilities {
	t := &b.config.Topology
	counting := b.counting()
	limit := brokers.DeliveryLimit{Known: !t.AsIs}
	if counting {
		limit.Max = t.DeliveryLimit + 1
	}
	return brokers.Capabilities{
		System:          "rabbitmq",
		NativeID:        true,
		DeliveryCount:   counting,
		Time:            b.config.Consume.ProducerTime,
		Ordered:         true,
		DeliveryLimit:   limit,
		FreeGiveBack:    counting && b.server.telling() || !t.AsIs && t.QueueType == QueueClassic,
		DelayedGiveBack: true,
		SettleLimit:     b.config.Consume.ConsumerTimeout,
		ReplayHorizon:   brokers.ReplayHorizon{Known: true},
	}
}

// Close closes the open subscribers, as Subscriber.Close does, and ends publishing: running calls
// fail with brokers.ErrClosed. It may be called again, and always returns nil.
func (b *Broker) Close() error {
	_ = b.subscribers.Close() // never fails
	b.publishing.close()
	b.mu.Lock()
	present := b.present
	b.mu.Unlock()
	if present != nil {
		<-present.life.Done()
	}
	return nil
}
