package amqp_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// tapped is a broker whose subscribers can be cut off.
type tapped struct {
	*amqp.Broker

	wires *amqp.Wires
}

const brokenHeader = "broken"

// harness describes the broker to the conformance suite.
func harness(address string, version rabbitmq.Version, change func(*amqp.Config)) brokertest.Harness {
	open := func(t testing.TB, address string, limit int) brokers.Broker {
		config := parse(t, address)
		change(&config)
		config.Consume.RetryDelays = []time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}
		config.Topology.DeliveryLimit = limit
		config.Consume.Unmarshal = func(d *amqp091.Delivery) (*message.Message, error) {
			if _, broken := d.Headers[brokenHeader]; broken {
				return nil, errors.New("broken")
			}
			return amqp.ReadDelivery(d), nil
		}
		b, wires, err := amqp.Tapped(t.Context(), removed(t, config))
		if err != nil {
			t.Fatal(err)
		}
		return tapped{b, wires}
	}
	foreign := func(t testing.TB, topic string, p amqp091.Publishing) {
		var config amqp.Config
		change(&config)
		exchange, key := topic, ""
		if config.Topology.Preset == amqp.PresetQueue {
			exchange, key = "", topic
		}
		if err := channel(t, address).PublishWithContext(t.Context(), exchange, key, true, false, p); err != nil {
			t.Fatal(err)
		}
	}
	return brokertest.Harness{
		Open: func(t testing.TB) brokers.Broker { return open(t, address, 0) },
		// Of RabbitMQ's limit a message has one delivery more.
		OpenLimited: func(t testing.TB, limit int) brokers.Broker { return open(t, address, limit-1) },
		OpenRestartable: func(t testing.TB) (brokers.Broker, func()) {
			server := testenv.PrivateRabbitMQ(t, version)
			return open(t, server.URL(), 0), func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
				if err := server.Start(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		KeptFreesSlot: true, // a quorum queue delivers the next message when its log has the ack
		Kill: func(_ testing.TB, b brokers.Broker, s message.Subscriber) {
			b.(tapped).wires.Kill(s.(*amqp.Subscriber))
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
}

// TestConformance runs the suite on one of two topologies each day.
func TestConformance(t *testing.T) {
	t.Parallel()
	topologies := map[string]func(*testing.T, rabbitmq.Version) brokertest.Harness{
		"queue for each group": func(t *testing.T, version rabbitmq.Version) brokertest.Harness {
			t.Helper()
			return harness(testenv.RabbitMQ(t, version), version, func(*amqp.Config) {})
		},
		"queue for each topic": sharedQueues,
	}
	for _, topology := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(topologies))...) {
		for _, version := range rotation.TurnEvery(t, len(topologies), 1, rabbitmq.Versions()...) {
			t.Run(topology+" on "+string(version), func(t *testing.T) {
				t.Parallel()
				brokertest.Run(t, topologies[topology](t, version))
			})
		}
	}
}

// sharedQueues has a queue for each topic, as watermill-amqp has it, which all groups share.
func sharedQueues(t *testing.T, version rabbitmq.Version) brokertest.Harness {
	t.Helper()
	kind := amqp.QueueQuorum
	if version == rabbitmq.Packaged { // one of each is enough
		kind = amqp.QueueClassic
	}
	h := harness(testenv.RabbitMQ(t, version), version, func(c *amqp.Config) {
		c.Topology.Preset, c.Topology.QueueType = amqp.PresetQueue, kind
	})
	h.OneGroup, h.OldMessages, h.OpenRestartable = true, true, nil
	if kind == amqp.QueueClassic {
		h.OpenLimited = nil
	}
	return h
}

// oneVersion returns the version of the server whose turn it is.
func oneVersion(t *testing.T) []rabbitmq.Version {
	t.Helper()
	return rotation.Turn(t, 1, rabbitmq.Versions()...)
}
