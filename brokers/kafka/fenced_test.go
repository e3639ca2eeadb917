package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestTopicIsMadeWhileBrokersAreMissing: a cluster whose controller has not heard of
// enough brokers for a moment refuses to make topics, and makes them a moment later.
func TestTopicIsMadeWhileBrokersAreMissing(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateKafka(t, testenv.WithKafkaSettings(map[string]string{
		"broker.heartbeat.interval.ms": "3000", // two of three seconds it counts as gone
		"broker.session.timeout.ms":    "1000",
	}))
	addresses := []string{server.Address()}
	b := newBroker(t, kafka.Config{Brokers: addresses, Publish: kafka.Publish{CreateTopics: true}})
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, addresses)
	if err := p.Publish("topic-"+uuid.NewString(), message.NewMessage("a", nil)); err != nil {
		t.Errorf("Publish returned %v", err)
	}
}

// TestTopicCannotHaveItsReplicas: where the brokers stay too few, the call ends and says so.
func TestTopicCannotHaveItsReplicas(t *testing.T) {
	t.Parallel()
	b := newBroker(t, kafka.Config{ConnectTimeout: 2 * time.Second, Publish: kafka.Publish{CreateTopics: true, Replication: 30}})
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Publish("topic-"+uuid.NewString(), message.NewMessage("a", nil))
	if !errors.Is(err, kerr.InvalidReplicationFactor) {
		t.Errorf("Publish returned %v", err)
	}
}

// refused returns when the cluster has refused to make a topic for want of brokers.
func refused(t *testing.T, addresses []string) {
	t.Helper()
	admin := kadm.NewClient(client(t, addresses))
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		_, err := admin.CreateTopic(context.Background(), 1, -1, nil, "topic-"+uuid.NewString())
		if errors.Is(err, kerr.InvalidReplicationFactor) {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Fatal("the broker was never missing")
}
