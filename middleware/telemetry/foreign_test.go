package telemetry_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/amqp"
	_ "github.com/millpond-go/millpond/brokers/amqp/official"
	_ "github.com/millpond-go/millpond/brokers/kafka"
	_ "github.com/millpond-go/millpond/brokers/kafka/official"
	_ "github.com/millpond-go/millpond/brokers/sqs"
	_ "github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
	"github.com/millpond-go/millpond/middleware/keys"
)

// foreigner is a program on a broker that knows neither Watermill nor millpond.
type foreigner struct {
	url     string // of the broker, without its scheme
	schemes []string
	topic   func(t *testing.T) string // that exists, and goes with the test
	produce func(t *testing.T, topic string, headers map[string]string, payload string)
	consume func(t *testing.T, topic string) (next func() map[string]string) // headers of the next message
}

// Trace context survives each broker both ways, with programs that only know the broker
// and what the W3C says about headers.
func TestForeignTraceContext(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) foreigner{
		"kafka": onKafka, "rabbitmq": onRabbitMQ, "sqs": onSQS,
	} {
		t.Run(name, func(t *testing.T) {
			foreign := open(t)
			for _, scheme := range foreign.schemes {
				open := func(t *testing.T) brokers.Broker {
					b, err := brokers.Open(t.Context(), scheme+foreign.url)
					require.NoError(t, err)
					return b
				}
				t.Run(scheme+" in", func(t *testing.T) { testForeignProducer(t, open, foreign) })
				t.Run(scheme+" out", func(t *testing.T) { testForeignConsumer(t, open, foreign) })
			}
		})
	}
}

func testForeignProducer(t *testing.T, open opener, foreign foreigner) {
	rig := newRig(t, open)
	rig.topic = foreign.topic(t)
	rig.inbox.Keys = keys.First(keys.Payload("id"))
	tenant := make(chan string, 1)
	r := rig.run(func(ctx context.Context, _ *message.Message) error {
		tenant <- baggage.FromContext(ctx).Member("tenant").Value()
		return nil
	})
	foreign.produce(t, r.topic, map[string]string{"traceparent": goodParent, "tracestate": "vendor=1", "baggage": "tenant=7"}, `{"id":"1"}`)
	select {
	case got := <-tenant:
		require.Equal(t, "7", got)
	case <-time.After(30 * time.Second):
		t.Fatal("the message does not come")
	}
	r.stop()
	for _, s := range r.spans.Ended() {
		if text(s, "messaging.message.body.size") == strconv.Itoa(len(`{"id":"1"}`)) {
			require.Equal(t, goodTrace, s.SpanContext().TraceID().String())
			require.Equal(t, "vendor=1", s.SpanContext().TraceState().String())
			require.True(t, s.Parent().IsRemote())
			return
		}
	}
	t.Error("there is no span of the message")
}

func testForeignConsumer(t *testing.T, open opener, foreign foreigner) {
	rig := newRig(t, open)
	rig.topic = foreign.topic(t)
	r := rig.run(func(context.Context, *message.Message) error { return nil })
	topic := foreign.topic(t)
	next := foreign.consume(t, topic)

	state, err := trace.ParseTraceState("vendor=1")
	require.NoError(t, err)
	ctx, span := r.tracers.Tracer("test").Start(trace.ContextWithRemoteSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state})), "client")
	member, err := baggage.NewMember("tenant", "7")
	require.NoError(t, err)
	bag, err := baggage.New(member)
	require.NoError(t, err)
	msg := message.NewMessage("1", []byte("pears"))
	for i := range 12 { // more than SQS has attributes
		msg.Metadata.Set("field"+strconv.Itoa(i), strconv.Itoa(i))
	}
	msg.SetContext(baggage.ContextWithBaggage(ctx, bag))
	require.NoError(t, r.publisher.Publish(topic, msg))
	span.End()

	headers := next()
	c := r.ended(1, func(s sdktrace.ReadOnlySpan) bool { return s.Name() == "send "+topic })[0].SpanContext()
	require.Equal(t, "00-"+c.TraceID().String()+"-"+c.SpanID().String()+"-01", headers["traceparent"])
	require.Equal(t, "vendor=1", headers["tracestate"])
	require.Equal(t, "tenant=7", headers["baggage"])
}

func newName(*testing.T) string { return "foreign-" + watermill.NewUUID() }

func onKafka(t *testing.T) foreigner {
	client := func(t *testing.T, options ...kgo.Opt) *kgo.Client {
		c, err := kgo.NewClient(append(options, kgo.SeedBrokers(testenv.Kafka(t)...), kgo.AllowAutoTopicCreation())...)
		require.NoError(t, err)
		t.Cleanup(c.Close)
		return c
	}
	return foreigner{
		url: "://" + strings.Join(testenv.Kafka(t), ",") + "/?create_topics=true&partitions=1", schemes: []string{"kafka", "kafka+watermill"},
		topic: func(t *testing.T) string {
			t.Helper()
			name := newName(t)
			create := kmsg.NewPtrCreateTopicsRequest()
			create.TimeoutMillis = 30_000
			topic := kmsg.NewCreateTopicsRequestTopic()
			topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 1, 1
			create.Topics = append(create.Topics, topic)
			_, err := create.RequestWith(t.Context(), client(t))
			require.NoError(t, err)
			return name
		},
		produce: func(t *testing.T, topic string, headers map[string]string, payload string) {
			record := &kgo.Record{Topic: topic, Value: []byte(payload)}
			for name, value := range headers {
				record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
			}
			require.NoError(t, client(t).ProduceSync(t.Context(), record).FirstErr())
		},
		consume: func(t *testing.T, topic string) func() map[string]string {
			return func() map[string]string {
				c := client(t, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				headers := make(map[string]string)
				for len(headers) == 0 && ctx.Err() == nil {
					c.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
						for _, h := range r.Headers {
							headers[h.Key] = string(h.Value)
						}
					})
				}
				return headers
			}
		},
	}
}

func onRabbitMQ(t *testing.T) foreigner {
	address := testenv.RabbitMQ(t, rabbitmq.Packaged)
	channel := func(t *testing.T) *amqp091.Channel {
		conn, err := amqp091.Dial(address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		ch, err := conn.Channel()
		require.NoError(t, err)
		return ch
	}
	return foreigner{
		url: strings.TrimPrefix(address, "amqp") + "?preset=queue&queue_type=classic", schemes: []string{"amqp", "amqp+watermill"},
		topic: func(t *testing.T) string {
			name := newName(t)
			ch := channel(t)
			_, err := ch.QueueDeclare(name, true, false, false, false, nil)
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = ch.QueueDelete(name, false, false, false) })
			return name
		},
		produce: func(t *testing.T, topic string, headers map[string]string, payload string) {
			table := amqp091.Table{}
			for name, value := range headers {
				table[name] = value
			}
			require.NoError(t, channel(t).PublishWithContext(t.Context(), "", topic, true, false,
				amqp091.Publishing{Headers: table, Body: []byte(payload)}))
		},
		consume: func(t *testing.T, topic string) func() map[string]string {
			deliveries, err := channel(t).ConsumeWithContext(t.Context(), topic, "", true, false, false, false, nil)
			require.NoError(t, err)
			return func() map[string]string {
				headers := make(map[string]string)
				select {
				case d := <-deliveries:
					for name, value := range d.Headers {
						headers[name], _ = value.(string)
					}
				case <-time.After(30 * time.Second):
				}
				return headers
			}
		},
	}
}

func onSQS(t *testing.T) foreigner {
	server := testenv.SQS(t)
	queueURL := func(t *testing.T, name string) *string {
		queue, err := server.Client(t).GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &name})
		require.NoError(t, err)
		return queue.QueueUrl
	}
	return foreigner{
		url: server.URL("") + "&wait=1s", schemes: []string{"sqs", "sqs+watermill"},
		topic: func(t *testing.T) string { return server.NewQueue(t, nil) },
		produce: func(t *testing.T, topic string, headers map[string]string, payload string) {
			attributes := make(map[string]types.MessageAttributeValue)
			for name, value := range headers {
				kind := "String"
				attributes[name] = types.MessageAttributeValue{DataType: &kind, StringValue: &value}
			}
			_, err := server.Client(t).SendMessage(t.Context(), &awssqs.SendMessageInput{
				QueueUrl: queueURL(t, topic), MessageBody: &payload, MessageAttributes: attributes,
			})
			require.NoError(t, err)
		},
		consume: func(t *testing.T, topic string) func() map[string]string {
			return func() map[string]string {
				headers := make(map[string]string)
				for until := time.Now().Add(30 * time.Second); len(headers) == 0 && time.Now().Before(until); {
					got, err := server.Client(t).ReceiveMessage(t.Context(), &awssqs.ReceiveMessageInput{
						QueueUrl: queueURL(t, topic), MessageAttributeNames: []string{"All"}, WaitTimeSeconds: 5,
					})
					require.NoError(t, err)
					for _, m := range got.Messages {
						for name, a := range m.MessageAttributes {
							if a.StringValue != nil {
								headers[name] = *a.StringValue
							}
						}
					}
				}
				return headers
			}
		},
	}
}
