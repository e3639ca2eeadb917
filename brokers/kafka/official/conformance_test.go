package official_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick")) // one for ever
}

// strict refuses one kind of record.
type strict struct{ official.Marshaler }

var errGarbage = errors.New("garbage")

func (s strict) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	if bytes.Equal(record.Value, []byte("garbage")) {
		return nil, errGarbage
	}
	return s.Marshaler.Unmarshal(record)
}

func open(t testing.TB, addresses []string) brokers.Broker {
	t.Helper()
	var l laying
	b, err := official.New(context.Background(), official.Config{
		Brokers: addresses,
		Sarama:  l.lay,
		Consume: official.Consume{SessionTimeout: 3 * time.Second, Unmarshaler: strict{}},
		Publish: official.Publish{KeyMetadata: "customer", CreateTopics: true, Partitions: 1, Replication: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tapped{b, addresses, &l}
}

func harness() brokertest.Harness {
	produced := func(t testing.TB, b brokers.Broker, record *kgo.Record) {
		produce(t, b.(tapped).addresses, record)
	}
	return brokertest.Harness{
		Open: func(t testing.TB) brokers.Broker { return open(t, testenv.Kafka(t)) },
		OpenRestartable: func(t testing.TB) (brokers.Broker, func()) {
			server := testenv.PrivateKafka(t)
			return open(t, []string{server.Address()}), func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
				if err := server.Start(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		Topic:       func(t testing.TB, b brokers.Broker) string { return newTopic(t, b.(tapped).addresses, 1) },
		Partitioned: func(t testing.TB, b brokers.Broker) string { return newTopic(t, b.(tapped).addresses, 4) },
		Serial:      true,
		Kill:        func(_ testing.TB, _ brokers.Broker, s message.Subscriber) { s.(subscriber).wires.cut() },
		PublishForeign: func(t testing.TB, b brokers.Broker, topic string, payload []byte) {
			produced(t, b, &kgo.Record{Topic: topic, Value: payload})
		},
		PublishHeaders: func(t testing.TB, b brokers.Broker, topic, header string, values []string) {
			record := &kgo.Record{Topic: topic}
			for _, value := range values {
				record.Headers = append(record.Headers, kgo.RecordHeader{Key: header, Value: []byte(value)})
			}
			produced(t, b, record)
		},
		PublishUndecodable: func(t testing.TB, b brokers.Broker, topic string) {
			produced(t, b, &kgo.Record{Topic: topic, Value: []byte("garbage")})
		},
		KeyMetadata: "customer",
		OldMessages: true,
		Short:       true,
		Within:      30 * time.Second,
		Quiet:       400 * time.Millisecond,
		Hold:        4 * time.Second, // longer than the session timeout
		Join:        2 * time.Second,
	}
}

func TestConformance(t *testing.T) {
	if rotation.Today(t, "kafka", "amqp", "kafka", "sqs") {
		brokertest.Run(t, harness())
	}
}

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

func newTopic(t testing.TB, addresses []string, partitions int32) string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin, topic := kadm.NewClient(client), "official-"+watermill.NewUUID()
	if _, err := admin.CreateTopic(context.Background(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	// On a busy machine that may take longer than the publisher tries.
	testenv.Eventually(t, "each partition of the new topic has a leader", func() bool {
		ends, err := admin.ListEndOffsets(context.Background(), topic)
		return err == nil && ends.Error() == nil && len(ends[topic]) == int(partitions)
	})
	return topic
}

var _ wmkafka.Unmarshaler = strict{}
