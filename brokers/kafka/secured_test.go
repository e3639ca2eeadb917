package kafka_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestSecured: with the right credentials and certificates messages pass; with the wrong
// ones the error says soon what to look at, and repeats no password.
func TestSecured(t *testing.T) {
	t.Parallel()
	if !rotation.Today(t, "kafka", "kafka", "kafka+watermill") {
		return
	}
	server := testenv.PrivateKafka(t, testenv.WithKafkaSecured())
	topic := newTopic(t, []string{server.Address()}, 1)
	ways, err := server.Ways(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		t.Run(way.Name, func(t *testing.T) {
			t.Parallel()
			config, err := kafka.ParseURL(&url.URL{Scheme: kafka.Scheme, Host: way.Address, RawQuery: way.Parameters.Encode()})
			if err != nil {
				t.Fatal(err)
			}
			config.Username, config.Password, config.ConnectTimeout = way.Username, way.Password, 5*time.Second
			started := time.Now()
			b, err := kafka.New(t.Context(), config)
			took := time.Since(started)
			if way.Says == "" {
				if err != nil {
					t.Fatal(err)
				}
				exchange(t, b, topic)
				return
			}
			if err == nil {
				_ = b.Close()
				t.Fatal("it was let in")
			}
			t.Logf("after %s: %v", took, err)
			if !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), way.Says) {
				t.Errorf("the error does not say %q: %v", way.Says, err)
			}
			if strings.Contains(err.Error(), server.Secured().Password) || way.Password != "" && strings.Contains(err.Error(), way.Password) {
				t.Errorf("the error repeats a password: %v", err)
			}
			if took > config.ConnectTimeout+15*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// exchange publishes a message and receives it, and closes the broker.
func exchange(t *testing.T, b brokers.Broker, topic string) {
	t.Helper()
	defer b.Close()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	if err := p.Publish(topic, message.NewMessage(id, nil)); err != nil {
		t.Fatal(err)
	}
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: id})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for {
		msg, _ := receive(t, messages)
		msg.Ack()
		if msg.UUID == id {
			return
		}
	}
}
