package sqs_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/brokertest"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// tapped is a broker whose subscribers can be cut off.
type tapped struct {
	*sqs.Broker

	wires *sqs.Wires
}

// fifoQueues makes the queues of a broker FIFO queues.
const fifoQueues = "{topic}.fifo"

func harness(s *server, change func(*sqs.Config)) brokertest.Harness {
	openOn := func(t testing.TB, s *server, limit int) brokers.Broker {
		config := sqs.Config{
			Region: s.Region(), Endpoint: s.Endpoint(), CreateQueues: true, DeliveryLimit: limit, ConnectTimeout: within,
			Consume: sqs.Consume{Visibility: 5 * time.Second, Wait: time.Second, RedeliveryDelay: 10 * time.Millisecond},
		}
		if change != nil {
			change(&config)
		}
		b, err := sqs.New(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		return tapped{b, sqs.Tap(b)}
	}
	open := func(t testing.TB, limit int) brokers.Broker { return openOn(t, s, limit) }
	var probe sqs.Config
	if change != nil {
		change(&probe) // to see what it makes
	}
	fifo := probe.Queue == fifoQueues
	send := func(t testing.TB, topic string, attributes map[string]types.MessageAttributeValue, payload []byte) {
		input := &awssqs.SendMessageInput{MessageBody: aws.String(string(payload)), MessageAttributes: attributes}
		if fifo {
			topic += ".fifo"
			input.MessageGroupId, input.MessageDeduplicationId = aws.String("group"), aws.String("id")
		}
		client := s.Client(t)
		queue, err := client.GetQueueUrl(context.Background(), &awssqs.GetQueueUrlInput{QueueName: &topic})
		if err != nil {
			t.Fatal(err)
		}
		input.QueueUrl = queue.QueueUrl
		if _, err := client.SendMessage(context.Background(), input); err != nil {
			t.Fatal(err)
		}
	}
	h := brokertest.Harness{
		Open:        func(t testing.TB) brokers.Broker { return open(t, 0) },
		OpenLimited: open,
		Kill: func(_ testing.TB, b brokers.Broker, s message.Subscriber) {
			b.(tapped).wires.Cut(s.(*sqs.Subscriber))
		},
		PublishForeign: func(t testing.TB, _ brokers.Broker, topic string, payload []byte) {
			send(t, topic, nil, payload)
		},
		PublishUndecodable: func(t testing.TB, _ brokers.Broker, topic string) {
			send(t, topic, map[string]types.MessageAttributeValue{
				"_millpond_packed": {DataType: aws.String("String"), StringValue: aws.String("{")},
			}, []byte("x"))
		},
		OneGroup:    probe.SNS == "",
		Serial:      fifo, // the suite's messages name no group, and so are one
		KeyMetadata: "MessageGroupId",
		OldMessages: probe.SNS == "",
		Short:       true,
		TooLarge:    2 << 20,
		Quiet:       400 * time.Millisecond,
		Hold:        8 * time.Second,
		Within:      30 * time.Second,
	}
	if change == nil {
		h.OpenRestartable = func(t testing.TB) (brokers.Broker, func()) {
			private := testenv.PrivateSQS(t)
			return openOn(t, private.SQSServer, 0), func() {
				if err := private.Kill(); err != nil {
					t.Error(err)
				}
				if err := private.Start(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if probe.SNS != "" {
		h.PublishForeign, h.PublishUndecodable = nil, nil // they know queues by the topic's name
	}
	return h
}

// TestConformance runs the suite on standard queues and FIFO queues of servers that
// disagree, and with SNS in front. moto, which is slow, gets queues without SNS only in a
// soak.
func TestConformance(t *testing.T) {
	t.Parallel()
	fifo := func(c *sqs.Config) { c.Queue = fifoQueues }
	fanOut := func(c *sqs.Config) { c.SNS = snsPrefix }
	kinds := map[string]func(testing.TB) brokertest.Harness{
		"ElasticMQ":     func(t testing.TB) brokertest.Harness { return harness(testenv.SQS(t), nil) },
		"ElasticMQFIFO": func(t testing.TB) brokertest.Harness { return harness(testenv.SQS(t), fifo) },
		"motoSNS":       func(t testing.TB) brokertest.Harness { return harness(testenv.Moto(t), fanOut) },
	}
	if rotation.Soak() {
		kinds["moto"] = func(t testing.TB) brokertest.Harness { return harness(testenv.Moto(t), nil) }
		kinds["motoFIFO"] = func(t testing.TB) brokertest.Harness { return harness(testenv.Moto(t), fifo) }
	}
	for _, kind := range rotation.Turn(t, 1, slices.Sorted(maps.Keys(kinds))...) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			brokertest.Run(t, kinds[kind](t))
		})
	}
}
