package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// tapped is a broker whose subscribers can be cut off.
type tapped struct {
	*kafka.Broker

	wires *kafka.Wires
}

const brokenHeader = "broken"

// harness describes the broker to the conformance suite. With one message in flight per
// partition the suite, whose topics have one partition, could not have several.
func harness(addresses []string, protocol kafka.Protocol) brokertest.Harness {
	open := func(t testing.TB, addresses []string) brokers.Broker {
		b, err := kafka.New(t.Context(), kafka.Config{
			Brokers: addresses,
			Consume: kafka.Consume{
				InFlightPerPartition: 8, Protocol: protocol, SessionTimeout: 3 * time.Second,
				Unmarshal: func(r *kgo.Record) (*message.Message, error) {
					if len(r.Headers) > 0 && r.Headers[0].Key == brokenHeader {
						return nil, errors.New("broken")
					}
					return kafka.ReadRecord(r), nil
				},
			},
			Publish: kafka.Publish{KeyMetadata: "customer", CreateTopics: true, Partitions: 1, Replication: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		return tapped{b, kafka.Tap(b)}
	}
	return brokertest.Harness{
		Open: func(t testing.TB) brokers.Broker { return open(t, addresses) },
		OpenRestartable: func(t testing.TB) (brokers.Broker, func()) {
			server := testenv.PrivateKafka(t, attentive)
			return open(t, []string{server.Address()}), func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
				if err := server.Start(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		Kill: func(_ testing.TB, b brokers.Broker, s message.Subscriber) {
			b.(tapped).wires.Cut(s.(*kafka.Subscriber))
		},
		PublishForeign: func(t testing.TB, _ brokers.Broker, topic string, payload []byte) {
			produce(t, addresses, &kgo.Record{Topic: topic, Value: payload})
		},
		PublishUndecodable: func(t testing.TB, _ brokers.Broker, topic string) {
			produce(t, addresses, &kgo.Record{Topic: topic, Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: brokenHeader}}})
		},
		KeyMetadata: "customer",
		TooLarge:    2 << 20,
		OldMessages: true,
		Short:       true,
		Quiet:       400 * time.Millisecond,
		Within:      30 * time.Second,
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	const days = 2
	if !rotation.Every(t, days) {
		return
	}
	for _, protocol := range rotation.TurnEvery(t, days, 1, "classic", "consumer") {
		t.Run(protocol, func(t *testing.T) {
			h := harness(testenv.Kafka(t), kafka.ProtocolClassic)
			if protocol == "consumer" {
				h = harness([]string{testenv.PrivateKafka(t, attentive).Address()}, kafka.ProtocolConsumer)
			}
			brokertest.Run(t, h)
		})
	}
}

// attentive is a broker that hears from the members of ProtocolConsumer more often than
// every five seconds, and notices their death sooner than after 45.
var attentive = testenv.WithKafkaSettings(map[string]string{
	"group.consumer.min.heartbeat.interval.ms": "200",
	"group.consumer.heartbeat.interval.ms":     "200",
	"group.consumer.min.session.timeout.ms":    "1000",
	"group.consumer.session.timeout.ms":        "3000",
})

// produce publishes as a program does that knows nothing of Watermill.
func produce(t testing.TB, addresses []string, records ...*kgo.Record) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
