package official_test

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

func TestMain(m *testing.M) {
	// Watermill-amqp leaves it behind when it is closed while it has no connection.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp.(*ConnectionWrapper).handleConnectionClose"))
}

// tapped is a broker whose subscribers can be cut off.
type tapped struct {
	*official.Broker

	*tap
}

// tap records the connections of the subscriber that subscribes now, and of no other.
type tap struct {
	mu  sync.Mutex // held while a subscriber or publisher is made
	now atomic.Pointer[subscriber]
}

func (t *tap) lay(c *wmamqp.Config) {
	s := t.now.Load()
	if s == nil {
		return
	}
	dial := c.Connection.AmqpConfig.Dial
	c.Connection.AmqpConfig.Dial = func(network, address string) (net.Conn, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.dead {
			return nil, errors.New("the wires were cut")
		}
		conn, err := dial(network, address)
		if err == nil {
			s.conn = conn
		}
		return conn, err
	}
}

func (b tapped) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Broker.Publisher(config)
}

func (b tapped) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	s, err := b.Broker.Subscriber(config)
	if err != nil {
		return nil, err
	}
	return &subscriber{Subscriber: s, tap: b.tap}, nil
}

type subscriber struct {
	message.Subscriber

	tap *tap

	mu   sync.Mutex
	dead bool
	conn net.Conn // the last one
}

func (s *subscriber) SubscribeInitialize(topic string) error {
	return s.Subscriber.(message.SubscribeInitializer).SubscribeInitialize(topic)
}

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.tap.mu.Lock()
	defer s.tap.mu.Unlock()
	s.tap.now.Store(s)
	defer s.tap.now.Store(nil)
	return s.Subscriber.Subscribe(ctx, topic)
}

// cut ends the connection, and lets nobody make another one if that is for ever.
func (s *subscriber) cut(forever bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = forever
	_ = s.conn.Close()
}

const brokenHeader = "broken"

// harness describes the broker to the conformance suite.
func harness(t *testing.T, address string, version rabbitmq.Version) brokertest.Harness {
	t.Helper()
	open := func(t testing.TB, address string, limit int) brokers.Broker {
		config := parse(t, address)
		config.Consume.RetryDelays = []time.Duration{100 * time.Millisecond, time.Second}
		config.Topology.DeliveryLimit = limit
		config.Consume.Unmarshal = func(d *amqp091.Delivery) (*message.Message, error) {
			if _, broken := d.Headers[brokenHeader]; broken {
				return nil, errors.New("broken")
			}
			return amqp.ReadDelivery(d), nil
		}
		var taps tap
		config.Watermill = taps.lay
		b, err := official.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return tapped{b, &taps}
	}
	foreign := func(t testing.TB, topic string, p amqp091.Publishing) {
		if err := channel(t, address).PublishWithContext(t.Context(), topic, "", true, false, p); err != nil {
			t.Fatal(err)
		}
	}
	h := brokertest.Harness{
		Open:   func(t testing.TB) brokers.Broker { return open(t, address, 0) },
		Serial: true,
		Kill:   func(_ testing.TB, _ brokers.Broker, s message.Subscriber) { s.(*subscriber).cut(true) },
		PublishForeign: func(t testing.TB, _ brokers.Broker, topic string, payload []byte) {
			foreign(t, topic, amqp091.Publishing{Body: payload})
		},
		PublishUndecodable: func(t testing.TB, _ brokers.Broker, topic string) {
			foreign(t, topic, amqp091.Publishing{Headers: amqp091.Table{brokenHeader: true}})
		},
		Short:  true,
		Quiet:  400 * time.Millisecond,
		Within: 30 * time.Second,
	}
	h.OpenRestartable = func(t testing.TB) (brokers.Broker, func()) {
		server := testenv.PrivateRabbitMQ(t, version)
		return open(t, server.URL(), 0), func() {
			if err := server.Kill(); err != nil {
				t.Error(err)
			}
			if err := server.Start(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
	probe := open(t, address, 0)
	if probe.Capabilities().DeliveryLimit.Known {
		// Of RabbitMQ's limit a message has one delivery more.
		h.OpenLimited = func(t testing.TB, limit int) brokers.Broker { return open(t, address, limit-1) }
	}
	if err := probe.Close(); err != nil {
		t.Error(err)
	}
	return h
}

func TestConformance(t *testing.T) {
	t.Parallel()
	if !rotation.Today(t, "amqp", "amqp", "kafka", "sqs") {
		return
	}
	byTurns(t, func(t *testing.T, address string, version rabbitmq.Version) {
		brokertest.Run(t, harness(t, address, version))
	})
}

// byTurns runs a test on the shared server of the version whose turn it is.
func byTurns(t *testing.T, test func(t *testing.T, address string, version rabbitmq.Version)) {
	t.Helper()
	for _, version := range rotation.Turn(t, 1, rabbitmq.Versions()...) {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			test(t, testenv.RabbitMQ(t, version), version)
		})
	}
}

func parse(t testing.TB, address string) official.Config {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Scheme = official.Scheme
	config, err := official.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// channel is one of a program that knows nothing of Watermill.
func channel(t testing.TB, address string) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}
