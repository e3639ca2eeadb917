package amqp_test

import (
	"context"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within is how long tests wait for what must happen.
const within = 30 * time.Second

// byTurns runs a test on the shared server of the version whose turn it is.
func byTurns(t *testing.T, test func(t *testing.T, address string)) {
	t.Helper()
	for _, version := range oneVersion(t) {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			test(t, testenv.RabbitMQ(t, version))
		})
	}
}

// TestOwnServer are the tests that change the server, or end it. They share one of the
// version whose turn it is, one after the other, since each takes its time to start.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	for _, version := range oneVersion(t) {
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			encrypted := newEncryption(t)
			settings := map[string]string{"max_message_size": strconv.Itoa(maxMessageSize)}
			maps.Copy(settings, encrypted.settings)
			server := testenv.PrivateRabbitMQ(t, version, testenv.WithRabbitMQSettings(settings))
			t.Run("TLS", func(t *testing.T) { testTLS(t, encrypted) })
			for _, c := range []struct {
				name string
				test func(*testing.T, *rabbitmq.Server)
			}{
				{"MessageOverALimit", testMessageOverALimit},
				{"NotAllowed", testNotAllowed},
				{"ConsumerTimeout", testConsumerTimeout},
				{"ServerThatHangs", testServerThatHangs},
				{"ServerThatDoesNotRead", testServerThatDoesNotRead},
				{"DelaysSurviveTheBroker", testDelaysSurviveTheBroker},
				{"BrokerIsKilled", testBrokerIsKilled},
				{"MemoryAlarm", testMemoryAlarm},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(t, server) })
			}
		})
	}
}

const maxMessageSize = 100_000

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

func newBroker(t testing.TB, config amqp.Config) *amqp.Broker {
	t.Helper()
	b, err := amqp.New(t.Context(), removed(t, config))
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

func subscriber(t testing.TB, b brokers.Broker, config brokers.SubscriberConfig) *amqp.Subscriber {
	t.Helper()
	if config.Group == "" {
		config.Group = "group"
	}
	s, err := b.Subscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*amqp.Subscriber)
}

func subscribe(t testing.TB, s *amqp.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func publisher(t testing.TB, b brokers.Broker) message.Publisher {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return p
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

func newTopic() string { return "topic-" + uuid.NewString() }

func newTapped(t testing.TB, config amqp.Config) (*amqp.Broker, *amqp.Wires) {
	t.Helper()
	b, wires, err := amqp.Tapped(t.Context(), removed(t, config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, wires
}

func parse(t testing.TB, address string) amqp.Config {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	config, err := amqp.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// removed lets the queues and exchanges of a broker be removed when the test has ended:
// the server is shared.
func removed(t testing.TB, config amqp.Config) amqp.Config {
	t.Helper()
	var mu sync.Mutex
	queues := map[string]string{} // to topics
	shared := config.Topology.Preset == amqp.PresetQueue
	config.Topology.Queue = func(topic, group string) string {
		queue := topic + "_" + group
		if shared {
			queue = topic
		}
		mu.Lock()
		defer mu.Unlock()
		queues[queue] = topic
		return queue
	}
	steps := config.Consume.RetryDelays
	address := "amqp://" + config.Addresses[0]
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		conn, err := amqp091.Dial(address)
		if err != nil {
			return // a server of the test's own, which has ended
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		for queue, topic := range queues {
			if topic == "" || len(topic) > 200 || strings.HasPrefix(topic, "amq.") {
				continue // a mistake on purpose
			}
			names := []string{queue, queue + ".dead"}
			for _, step := range steps {
				names = append(names, queue+".retry."+step.String())
			}
			for _, name := range names {
				if _, err := ch.QueueDelete(name, false, false, false); err != nil {
					t.Error(err)
					return
				}
			}
			if err := ch.ExchangeDelete(queue+".retry", false, false); err != nil {
				t.Error(err)
				return
			}
			if err := ch.ExchangeDelete(topic, false, false); err != nil {
				return // one of the server's own
			}
		}
	})
	return config
}
