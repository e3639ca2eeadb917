package official_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/brokers/brokertest"
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

	wires *official.Wires
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
		b, err := official.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return tapped{b, official.Tap(b)}
	}
	foreign := func(t testing.TB, topic string, p amqp091.Publishing) {
		if err := channel(t, address).PublishWithContext(t.Context(), topic, "", true, false, p); err != nil {
			t.Fatal(err)
		}
	}
	h := brokertest.Harness{
		Open:   func(t testing.TB) brokers.Broker { return open(t, address, 0) },
		Serial: true,
		Kill: func(_ testing.TB, b brokers.Broker, s message.Subscriber) {
			b.(tapped).wires.Cut(s.(*official.Subscriber))
		},
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
	onEach(t, func(t *testing.T, address string, version rabbitmq.Version) {
		brokertest.Run(t, harness(t, address, version))
	})
}

// onEach runs a test on the shared server of each version.
func onEach(t *testing.T, test func(t *testing.T, address string, version rabbitmq.Version)) {
	t.Helper()
	for _, version := range rabbitmq.Versions() {
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
