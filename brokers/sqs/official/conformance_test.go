package official_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"go.uber.org/goleak"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/internal/cutoff"
	"github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// visibility is what a delivery of these tests has until it is taken back: enough for a
// slow machine.
const visibility = 8 * time.Second

// tapped is a broker whose subscribers can be cut off: clients that are made while one of them
// subscribes pass through its wires.
type tapped struct {
	*official.Broker

	*tap
}

type tap struct {
	mu    sync.Mutex // held while a client is made
	now   atomic.Pointer[subscriber]
	wires cutoff.Wires[*subscriber]
}

func (t *tap) options(o *awssqs.Options) {
	if s := t.now.Load(); s != nil {
		o.HTTPClient = t.wires.Through(s, o.HTTPClient)
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
	return &subscriber{s, b.tap}, nil
}

type subscriber struct {
	message.Subscriber

	tap *tap
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

func open(t testing.TB, s *testenv.SQSServer, change func(*sqs.Config)) *official.Broker {
	t.Helper()
	config := sqs.Config{
		Region: s.Region(), Endpoint: s.Endpoint(), CreateQueues: true,
		Consume: sqs.Consume{Visibility: visibility, Wait: time.Second},
	}
	if change != nil {
		change(&config)
	}
	b, err := official.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// send sends as a program does that knows nothing of Watermill.
func send(t testing.TB, s *testenv.SQSServer, queue string, attributes map[string]types.MessageAttributeValue, payload []byte) {
	t.Helper()
	client := s.Client(t)
	url, err := client.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.SendMessage(context.Background(), &awssqs.SendMessageInput{
		QueueUrl: url.QueueUrl, MessageBody: aws.String(string(payload)), MessageAttributes: attributes,
	}); err != nil {
		t.Fatal(err)
	}
}

func harness(s *testenv.SQSServer, change func(*sqs.Config)) brokertest.Harness {
	opened := func(t testing.TB, s *testenv.SQSServer, limit int, visibility time.Duration) brokers.Broker {
		var taps tap
		b := open(t, s, func(c *sqs.Config) {
			c.SQSOptions = append(c.SQSOptions, taps.options)
			c.DeliveryLimit = limit
			c.Consume.Visibility, c.Consume.RedeliveryDelay = visibility, time.Second
			change(c)
		})
		return tapped{b, &taps}
	}
	return brokertest.Harness{
		Open:        func(t testing.TB) brokers.Broker { return opened(t, s, 0, visibility) },
		OpenLimited: func(t testing.TB, limit int) brokers.Broker { return opened(t, s, limit, visibility) },
		OpenRestartable: func(t testing.TB) (brokers.Broker, func()) {
			server := testenv.PrivateSQS(t)
			const longerThanARestart = 30 * time.Second // or an ack would come too late
			return opened(t, server.SQSServer, 0, longerThanARestart), func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
				if err := server.Start(context.Background()); err != nil {
					t.Error(err)
				}
			}
		},
		Topic: func(t testing.TB, _ brokers.Broker) string { return s.QueueName(t, "") },
		Kill:  func(_ testing.TB, b brokers.Broker, s message.Subscriber) { b.(tapped).wires.Cut(s.(*subscriber)) },
		PublishForeign: func(t testing.TB, _ brokers.Broker, topic string, payload []byte) {
			send(t, s, topic, nil, payload)
		},
		PublishUndecodable: func(t testing.TB, _ brokers.Broker, topic string) {
			send(t, s, topic, map[string]types.MessageAttributeValue{
				"_millpond_packed": {DataType: aws.String("String"), StringValue: aws.String("{")},
			}, []byte("x"))
		},
		OneGroup:    true,
		KeyMetadata: "MessageGroupId",
		OldMessages: true,
		Short:       true,
		Within:      30 * time.Second,
		Quiet:       400 * time.Millisecond,
		Hold:        2 * time.Second, // within the visibility, which nothing extends
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	if !rotation.Today(t, "sqs", "amqp", "kafka", "sqs") {
		return
	}
	brokertest.Run(t, harness(testenv.SQS(t), func(*sqs.Config) {}))
}

// TestConformanceMoto asks the same of the other emulator, which is slow.
func TestConformanceMoto(t *testing.T) {
	if !rotation.Soak() {
		t.Log("set MILLPOND_SOAK=1 for the whole suite on moto; the tests of what the two emulators do not agree on run on both")
		return
	}
	brokertest.Run(t, harness(testenv.Moto(t), func(*sqs.Config) {}))
}
