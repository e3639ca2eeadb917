package kafka_test

import (
	"maps"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestForeignProducer: a record of a program that knows nothing of Watermill becomes a
// message with all that it carries.
func TestForeignProducer(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, testenv.Kafka(t), 1)
	at := time.UnixMilli(1_700_000_000_000)
	produce(t, testenv.Kafka(t),
		&kgo.Record{
			Topic: topic, Key: []byte("key\xff"), Value: []byte("\x00value"), Timestamp: at,
			Headers: []kgo.RecordHeader{
				{Key: "trace", Value: []byte("1")},
				{Key: "binary", Value: []byte{0xff, 0, 0xfe}},
				{Key: "trace", Value: []byte("2")},
				{Key: "empty"},
				{Key: "", Value: []byte("no name")},
			},
		},
		&kgo.Record{Topic: topic}, // a tombstone without a key
	)
	for producerTime, want := range map[bool]time.Time{false: {}, true: at} {
		b := newBroker(t, kafka.Config{Consume: kafka.Consume{ProducerTime: producerTime}})
		s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString()})
		messages := subscribe(t, s, topic)
		msg, d := receive(t, messages)
		msg.Ack()
		metadata := message.Metadata{"trace[0]": "1", "trace": "2", "binary": "\xff\x00\xfe", "empty": "", "": "no name"}
		if msg.UUID != "" || string(msg.Payload) != "\x00value" || !maps.Equal(msg.Metadata, metadata) {
			t.Errorf("UUID %q, payload %q, metadata %q", msg.UUID, msg.Payload, msg.Metadata)
		}
		if d.Coordinates != topic+"/0/0" || string(d.Key) != "key\xff" || !d.Time.Equal(want) || d.Undecodable != nil || d.NativeID != "" {
			t.Errorf("%+v", d)
		}
		msg, d = receive(t, messages)
		msg.Ack()
		if msg.UUID != "" || len(msg.Payload) != 0 || d.Key != nil || d.Coordinates != topic+"/0/1" {
			t.Errorf("UUID %q, payload %q, %+v", msg.UUID, msg.Payload, d)
		}
	}
}

// TestBrokersTime: on a topic with LogAppendTime the time is the broker's.
func TestBrokersTime(t *testing.T) {
	t.Parallel()
	topic, kind := "appended-"+uuid.NewString(), "LogAppendTime"
	createTopic(t, testenv.Kafka(t), topic, 1, map[string]*string{"message.timestamp.type": &kind})
	b := newBroker(t, kafka.Config{})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString()})
	messages := subscribe(t, s, topic)
	produce(t, testenv.Kafka(t), &kgo.Record{Topic: topic, Timestamp: time.UnixMilli(1)})
	msg, d := receive(t, messages)
	msg.Ack()
	if since := time.Since(d.Time); since < -time.Minute || since > time.Minute {
		t.Errorf("the time is %s", d.Time)
	}
}

// TestForeignConsumer: what others read are plain headers, with the UUID in
// watermill-kafka's.
func TestForeignConsumer(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, kafka.Config{})
	msg := message.NewMessage("uuid", []byte("payload"))
	msg.Metadata = message.Metadata{"name": "value", "binary": "\xff", "trace[0]": "1", "trace": "2"}
	if err := publisher(t, b).Publish(topic, msg); err != nil {
		t.Fatal(err)
	}
	r := read(t, topic, 1)[0]
	var headers []string
	for _, h := range r.Headers {
		headers = append(headers, h.Key+"="+string(h.Value))
	}
	want := []string{"_watermill_message_uuid=uuid", "binary=\xff", "name=value", "trace=1", "trace=2"}
	if string(r.Value) != "payload" || r.Key != nil || len(headers) != len(want) {
		t.Fatalf("%q %q %q", r.Key, r.Value, headers)
	}
	for i := range want {
		if headers[i] != want[i] {
			t.Errorf("header %d is %q", i, headers[i])
		}
	}
}

// TestTransactions: what was aborted never comes, and the markers between transactions
// do not hold anything up.
func TestTransactions(t *testing.T) {
	t.Parallel()
	topic, group := newTopic(t, testenv.Kafka(t), 1), uuid.NewString()
	c := client(t, testenv.Kafka(t), kgo.TransactionalID(uuid.NewString()))
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		value := "committed"
		if end == kgo.TryAbort {
			value = "aborted"
		}
		for range 3 {
			if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{InFlightPerPartition: 4}})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 4})
	messages := subscribe(t, s, topic)
	for range 6 {
		msg, d := receive(t, messages)
		if string(msg.Payload) != "committed" {
			t.Errorf("%s is %s", d.Coordinates, msg.Payload)
		}
		msg.Ack()
	}
	_ = s.Close()
	again := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: group}), topic)
	select {
	case msg := <-again:
		t.Errorf("%s came again", msg.Payload)
	case <-time.After(time.Second):
	}
}
