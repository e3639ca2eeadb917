package sqs_test

import (
	"context"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestMain lets more tests run at a time than there are cores: they wait for visibility
// timeouts and long polls, mostly.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// within is how long tests wait for what must happen.
const within = 30 * time.Second

// server is one of the emulators, which disagree, or AWS.
type server = testenv.SQSServer

// byTurns runs a test against the server whose turn it is.
func byTurns(t *testing.T, test func(t *testing.T, s *server)) {
	t.Helper()
	t.Parallel()
	for name, open := range rotation.Some(t, 1, map[string]func(testing.TB) *server{"ElasticMQ": testenv.SQS, "moto": testenv.Moto}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// newBroker opens a broker with short waits.
func newBroker(t testing.TB, s *server, config sqs.Config) *sqs.Broker {
	t.Helper()
	config.Region, config.Endpoint = s.Region(), s.Endpoint()
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = within
	}
	if config.Consume.Wait == 0 {
		config.Consume.Wait = time.Second
	}
	b, err := sqs.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func subscriber(t testing.TB, b *sqs.Broker, config brokers.SubscriberConfig) *sqs.Subscriber {
	t.Helper()
	if config.Group == "" {
		config.Group = "group"
	}
	s, err := b.Subscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*sqs.Subscriber)
}

func subscribe(t testing.TB, s *sqs.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func publish(t testing.TB, b *sqs.Broker, topic string, messages ...*message.Message) {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, messages...); err != nil {
		t.Fatal(err)
	}
}

func receive(t testing.TB, messages <-chan *message.Message) (*message.Message, brokers.Delivery) {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the output channel is closed")
		}
		d, ok := brokers.DeliveryOf(msg)
		if !ok {
			t.Fatal("the message carries no brokers.Delivery")
		}
		return msg, d
	case <-time.After(within):
		t.Fatalf("no message came within %s", within)
	}
	return nil, brokers.Delivery{}
}

// nothing expects that no message comes for a time.
func nothing(t testing.TB, messages <-chan *message.Message, d time.Duration) {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if ok {
			t.Errorf("message %q came: %s", msg.UUID, msg.Payload)
		}
	case <-time.After(d):
	}
}

func says(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, word := range words {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
}

func newID() string { return uuid.NewString() }
