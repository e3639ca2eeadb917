package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/openset"
	"github.com/millpond-go/millpond/internal/urlquery"
)

var (
	// ErrNoStream: no stream has the topic's messages, and Config.CreateStreams is off.
	ErrNoStream = errors.New("nats: no stream takes the topic")
	// ErrConsumerDiffers: the group's consumer exists with other settings.
	ErrConsumerDiffers = errors.New("nats: the consumer has other settings")
	// ErrTooLarge: the message exceeds the server's limit.
	ErrTooLarge = fmt.Errorf("nats: %w", brokers.ErrTooLarge)
	// ErrTopic: a topic must be a NATS subject without wildcards.
	ErrTopic = errors.New("nats: the topic is no subject: write words of printable characters joined by dots, without * and >")
)

// Broker is a NATS server or cluster with JetStream. It is safe for concurrent use.
type Broker struct {
	config Config
	conn   *natsgo.Conn
	js     jetstream.JetStream

	closing     sync.Once
	ended       chan struct{}
	subscribers openset.Set[*Subscriber]
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// New connects to a server. The error names every invalid field, or says why the server cannot be
// used; then it wraps brokers.ErrUnavailable and comes within Config.ConnectTimeout.
func New(ctx context.Context, config Config) (*Broker, error) {
	if err := config.validate(urlquery.InGo); err != nil {
		return nil, err
	}
	field.SetDefaults(&config)
	ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout)
	defer cancel()
	b := &Broker{config: config, ended: make(chan struct{})}
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	err := b.ask(ctx)
	if err == nil {
		b.js, err = jetstream.New(b.conn, jetstream.WithPublishAsyncTimeout(config.Publish.Timeout))
	}
	if err != nil {
		b.conn.Close()
		return nil, err
	}
	return b, nil
}

// connect connects to a server. The client tries the servers one after the other and ignores
// contexts, so when ctx ends it is left to itself.
func (b *Broker) connect(ctx context.Context) error {
	type answer struct {
		conn *natsgo.Conn
		err  error
	}
	servers := strings.Join(b.config.Servers, ",")
	connected := make(chan answer, 1)
	go func() {
		conn, err := natsgo.Connect(servers, b.options()...)
		connected <- answer{conn, err}
	}()
	select {
	case a := <-connected:
		if a.err != nil {
			return fmt.Errorf("nats: %w: connect to %s: %w", brokers.ErrUnavailable, servers, a.err)
		}
		b.conn = a.conn
		return nil
	case <-ctx.Done():
		go func() {
			if a := <-connected; a.err == nil {
				a.conn.Close()
			}
		}()
		return fmt.Errorf("nats: %w: connect to %s: %w", brokers.ErrUnavailable, servers, context.Cause(ctx))
	}
}

func (b *Broker) options() []natsgo.Option {
	c := &b.config
	options := []natsgo.Option{
		natsgo.Name("millpond"),
		natsgo.Timeout(c.ConnectTimeout),
		natsgo.MaxReconnects(-1),
		natsgo.ReconnectWait(100 * time.Millisecond),
	}
	if c.TLS != nil {
		options = append(options, natsgo.Secure(c.TLS))
	}
	switch user := os.Getenv(UsernameVariable); {
	case c.Credentials != "":
		options = append(options, natsgo.UserCredentials(c.Credentials))
	case user != "":
		options = append(options, natsgo.UserInfo(user, os.Getenv(PasswordVariable)))
	}
	return append(options, c.Options...)
}

// connections counts connections. After a reconnect the server may have forgotten earlier
// deliveries.
func (b *Broker) connections() uint64 { return b.conn.Stats().Reconnects }

// Ping checks whether the server answers and has JetStream. Its error wraps brokers.ErrUnavailable
// or brokers.ErrClosed.
func (b *Broker) Ping(ctx context.Context) error {
	select {
	case <-b.ended:
		return fmt.Errorf("nats: %w", brokers.ErrClosed)
	default:
		return b.ask(ctx)
	}
}

func (b *Broker) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
	defer cancel()
	js, err := jetstream.New(b.conn)
	if err == nil {
		_, err = js.AccountInfo(ctx)
	}
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("nats: %w: the server has no JetStream for this account: switch it on", brokers.ErrUnavailable)
	case err != nil:
		return fmt.Errorf("nats: %w: %w", brokers.ErrUnavailable, err)
	}
	return nil
}

// Subscriber returns a new subscriber. Its errors name every invalid field, or wrap
// brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults("nats")
	if err != nil {
		return nil, err
	}
	s := &Subscriber{broker: b, config: config}
	if !b.subscribers.Add(s) {
		return nil, fmt.Errorf("nats: %w", brokers.ErrClosed)
	}
	return s, nil
}

// Publisher returns a new publisher. Its error wraps brokers.ErrClosed.
func (b *Broker) Publisher(brokers.PublisherConfig) (message.Publisher, error) {
	if b.subscribers.Closed() {
		return nil, fmt.Errorf("nats: %w", brokers.ErrClosed)
	}
	return newPublisher(b), nil
}

// Capabilities describes JetStream. The delivery limit is Consume's, which Subscribe compares with
// the server's.
func (b *Broker) Capabilities() brokers.Capabilities {
	return brokers.Capabilities{
		System:          "nats",
		NativeID:        b.config.Publish.MsgID,
		Coordinates:     true,
		DeliveryCount:   true,
		Time:            true,
		Ordered:         b.config.Consume.Ordered,
		DeliveryLimit:   brokers.DeliveryLimit{Known: true, Max: b.config.Consume.DeliveryLimit},
		DelayedGiveBack: true,
	}
}

// Close closes the open subscribers, as Subscriber.Close does, and the connection: running calls of
// Publish fail with brokers.ErrClosed. It may be called again, and always returns nil.
func (b *Broker) Close() error {
	_ = b.subscribers.Close() // never fails
	b.closing.Do(func() {
		close(b.ended)
		_ = b.conn.FlushTimeout(flushTimeout) // flushes acks; messages whose ack is lost are redelivered
		b.conn.Close()
	})
	return nil
}

// flushTimeout bounds the wait for acks in transit.
const flushTimeout = 5 * time.Second

// unavailable says that a request was not answered.
func unavailable(err error) error {
	var netErr net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natsgo.ErrTimeout) || errors.Is(err, natsgo.ErrConnectionClosed) ||
		errors.Is(err, jetstream.ErrTooManyStalledMsgs) || errors.Is(err, jetstream.ErrAsyncPublishTimeout) || errors.As(err, &netErr) {
		return fmt.Errorf("%w: %w", brokers.ErrUnavailable, err)
	}
	return err
}
