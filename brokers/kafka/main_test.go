package kafka_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// within is how long tests wait for what must happen.
const within = 30 * time.Second

func newBroker(t testing.TB, config kafka.Config) *kafka.Broker {
	t.Helper()
	if config.Brokers == nil {
		config.Brokers = testenv.Kafka(t)
	}
	b, err := kafka.New(t.Context(), config)
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

func client(t testing.TB, addresses []string, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addresses...)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newTopic(t testing.TB, addresses []string, partitions int32) string {
	t.Helper()
	topic := "topic-" + uuid.NewString()
	createTopic(t, addresses, topic, partitions, nil)
	return topic
}

func createTopic(t testing.TB, addresses []string, topic string, partitions int32, settings map[string]*string) {
	t.Helper()
	deadline := time.Now().Add(within)
	for { // it may still be being deleted
		_, err := kadm.NewClient(client(t, addresses)).CreateTopic(context.Background(), partitions, 1, settings, topic)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// fill publishes n messages to each of the partitions, with payloads "0", "1", ….
func fill(t testing.TB, addresses []string, topic string, partitions int32, n int) {
	t.Helper()
	c := client(t, addresses, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var records []*kgo.Record
	for i := range n {
		for p := range partitions {
			records = append(records, &kgo.Record{Topic: topic, Partition: p, Value: []byte(strconv.Itoa(i))})
		}
	}
	if err := c.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func subscriber(t testing.TB, b *kafka.Broker, config brokers.SubscriberConfig) *kafka.Subscriber {
	t.Helper()
	s, err := b.Subscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s.(*kafka.Subscriber)
}

func subscribe(t testing.TB, s *kafka.Subscriber, topic string) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return messages
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

// tally counts deliveries by coordinates.
type tally struct {
	mu      sync.Mutex
	total   int
	begun   map[string]int
	running map[string]bool
	overlap []string // coordinates that ran twice at once
}

func newTally() *tally {
	return &tally{begun: map[string]int{}, running: map[string]bool{}}
}

// consume handles messages until the channel is closed. A nil error acks.
func (l *tally) consume(messages <-chan *message.Message, handle func(d brokers.Delivery, msg *message.Message) error) *sync.WaitGroup {
	var all sync.WaitGroup
	all.Go(func() {
		for msg := range messages {
			all.Go(func() { l.handle(msg, handle) })
		}
	})
	return &all
}

func (l *tally) handle(msg *message.Message, handle func(d brokers.Delivery, msg *message.Message) error) {
	d, _ := brokers.DeliveryOf(msg)
	l.mu.Lock()
	l.began(d)
	if l.running[d.Coordinates] {
		l.overlap = append(l.overlap, d.Coordinates)
	}
	l.running[d.Coordinates] = true
	l.mu.Unlock()
	err := handle(d, msg)
	l.mu.Lock()
	delete(l.running, d.Coordinates)
	l.mu.Unlock()
	if err == nil {
		msg.Ack()
	} else {
		msg.Nack()
	}
}

func (l *tally) count() (messages, deliveries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.begun), l.total
}

// began counts a delivery. l.mu must be held.
func (l *tally) began(d brokers.Delivery) {
	l.total++
	l.begun[d.Coordinates]++
}

func (l *tally) wait(t testing.TB, messages int) {
	t.Helper()
	testenv.Eventually(t, strconv.Itoa(messages)+" messages are handled", func() bool {
		n, _ := l.count()
		return n >= messages
	})
}

// waitFor waits for one message, which need not come first: several are in flight.
func (l *tally) waitFor(t testing.TB, coordinates string) {
	t.Helper()
	testenv.Eventually(t, coordinates+" is handled", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.begun[coordinates] > 0
	})
}
