package official_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/official"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// within is how long tests wait for what must happen.
const within = 30 * time.Second

// forever is a visibility after which no test waits.
const forever = time.Hour

// byTurns runs a test against the emulator whose turn it is: they disagree.
func byTurns(t *testing.T, test func(t *testing.T, s *testenv.SQSServer)) {
	t.Helper()
	t.Parallel()
	for name, server := range rotation.Some(t, 1, map[string]func(testing.TB) *testenv.SQSServer{"ElasticMQ": testenv.SQS, "moto": testenv.Moto}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, server(t))
		})
	}
}

func opened(t *testing.T, s *testenv.SQSServer, change func(*sqs.Config)) *official.Broker {
	t.Helper()
	b := open(t, s, change)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func publish(t *testing.T, b brokers.Broker, topic string, messages ...*message.Message) {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err == nil {
		err = errors.Join(p.Publish(topic, messages...), p.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, b brokers.Broker, config brokers.SubscriberConfig, topic string) (message.Subscriber, <-chan *message.Message) {
	t.Helper()
	if config.Group == "" {
		config.Group = "group"
	}
	config.DrainTimeout = 10 * time.Second
	s, err := b.Subscriber(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() }) // before the queue is deleted
	messages, err := s.Subscribe(context.Background(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return s, messages
}

func receive(t *testing.T, messages <-chan *message.Message) (*message.Message, brokers.Delivery) {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the output channel is closed")
		}
		d, _ := brokers.DeliveryOf(msg)
		return msg, d
	case <-time.After(within):
		t.Fatalf("no message came within %s", within)
	}
	return nil, brokers.Delivery{}
}

func inGroup(group string, n int) *message.Message {
	msg := message.NewMessage(watermill.NewUUID(), []byte(fmt.Sprint(group, n)))
	msg.Metadata.Set("MessageGroupId", group)
	msg.Metadata.Set("MessageDeduplicationId", fmt.Sprint("id-", group, n))
	return msg
}

func TestFIFOKeepsTheOrderOfEachGroup(t *testing.T) {
	byTurns(t, func(t *testing.T, s *testenv.SQSServer) {
		topic := s.QueueName(t, ".fifo")
		b := opened(t, s, func(c *sqs.Config) { c.Queue = "{topic}.fifo" })
		if can := b.Capabilities(); !can.Ordered || !can.NativeID {
			t.Errorf("the capabilities are %+v", can)
		}
		_, messages := subscribe(t, b, brokers.SubscriberConfig{InFlight: 2}, topic)
		publish(t, b, topic, inGroup("a", 1), inGroup("b", 1), inGroup("a", 2), inGroup("b", 2), inGroup("a", 3))
		next := map[string]int{"a": 1, "b": 1}
		nacked := false
		for n := 0; n < 5; {
			msg, d := receive(t, messages)
			group := string(d.Key)
			if want := fmt.Sprint(group, next[group]); string(msg.Payload) != want || d.NativeID != "id-"+want || msg.Metadata.Get("MessageGroupId") != "" {
				t.Errorf("instead of %s came %s, %+v, %v", want, msg.Payload, d, msg.Metadata)
			}
			if !nacked && group == "a" && next["a"] == 2 {
				nacked = true
				brokers.SetGiveBack(msg, brokers.GiveBack{After: time.Second})
				msg.Nack()
				continue
			}
			next[group]++
			n++
			msg.Ack()
		}
	})
}

// TestLateAckSettlesNothing: moto, as SQS documents, deletes by the receipt of a delivery
// that it has taken back long ago.
func TestLateAckSettlesNothing(t *testing.T) {
	byTurns(t, func(t *testing.T, s *testenv.SQSServer) {
		topic := s.QueueName(t, "")
		short := opened(t, s, func(c *sqs.Config) { c.Consume.Visibility = 2 * time.Second })
		long := opened(t, s, func(c *sqs.Config) { c.Consume.Visibility = forever })
		first, slow := subscribe(t, short, brokers.SubscriberConfig{}, topic)
		publish(t, short, topic, message.NewMessage("uuid", []byte("payload")))
		late, d := receive(t, slow)
		if d.Count != 1 || d.Suspect || d.Time.IsZero() {
			t.Errorf("the first delivery is %+v", d)
		}
		other, messages := subscribe(t, long, brokers.SubscriberConfig{}, topic)
		msg, d := receive(t, messages)
		if d.Count != 2 || !d.Suspect {
			t.Errorf("the second delivery is %+v", d)
		}
		closed := make(chan error)
		go func() { closed <- first.Close() }() // so that it does not receive the message once more
		<-late.Context().Done()
		late.Ack()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		brokers.SetGiveBack(msg, brokers.GiveBack{After: time.Second})
		msg.Nack()
		msg, _ = receive(t, messages)
		msg.Ack()
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestForeignAttributes: a UUID that is no text ends a program on watermill-aws.
func TestForeignAttributes(t *testing.T) {
	byTurns(t, func(t *testing.T, s *testenv.SQSServer) {
		topic := s.NewQueue(t, nil)
		b := opened(t, s, nil)
		_, messages := subscribe(t, b, brokers.SubscriberConfig{}, topic)
		send(t, s, topic, map[string]types.MessageAttributeValue{
			wmsqs.UUIDAttribute: {DataType: aws.String("Binary"), BinaryValue: []byte("bytes")},
			"number":            {DataType: aws.String("Number.int"), StringValue: aws.String("7")},
		}, []byte("payload"))
		msg, d := receive(t, messages)
		if msg.UUID != "bytes" || msg.Metadata.Get("number") != "7" || string(msg.Payload) != "payload" || d.Undecodable != nil {
			t.Errorf("the message is %q, %v, %q, %+v", msg.UUID, msg.Metadata, msg.Payload, d)
		}
		msg.Ack()
	})
}

// TestBothAdaptersReadEachOther: a program moves between the two by its URL.
func TestBothAdaptersReadEachOther(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	one := opened(t, s, nil)
	other, err := sqs.New(t.Context(), sqs.Config{Region: s.Region(), Endpoint: s.Endpoint(), CreateQueues: true, Consume: sqs.Consume{Wait: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	sent := message.NewMessage(watermill.NewUUID(), []byte{0, 1, 0xFF})
	for i := range 20 { // more than SQS has attributes
		sent.Metadata.Set(fmt.Sprint("field-", i), fmt.Sprint(i))
	}
	for _, way := range [][2]brokers.Broker{{one, other}, {other, one}} {
		topic := s.QueueName(t, "")
		publish(t, way[0], topic, sent)
		_, messages := subscribe(t, way[1], brokers.SubscriberConfig{}, topic)
		msg, _ := receive(t, messages)
		if !msg.Equals(sent) {
			t.Errorf("the message is %q, %v, %q", msg.UUID, msg.Metadata, msg.Payload)
		}
		msg.Ack()
	}
}

func TestGroupsBehindATopic(t *testing.T) {
	t.Parallel()
	s := testenv.Moto(t)
	b := opened(t, s, func(c *sqs.Config) { c.SNS = "arn:aws:sns:" + s.Region() + ":123456789012" })
	topic := s.QueueName(t, "")
	_, first := subscribe(t, b, brokers.SubscriberConfig{Group: "first"}, topic)
	_, second := subscribe(t, b, brokers.SubscriberConfig{Group: "second"}, topic)
	sent := message.NewMessage(watermill.NewUUID(), []byte("payload"))
	sent.Metadata.Set("field", "value")
	publish(t, b, topic, sent)
	for _, messages := range []<-chan *message.Message{first, second} {
		msg, d := receive(t, messages)
		if !msg.Equals(sent) || d.Topic != topic {
			t.Errorf("the message is %q, %v, %q, %+v", msg.UUID, msg.Metadata, msg.Payload, d)
		}
		msg.Ack()
	}
}

// TestServerForgets: queues that are made again are used again, under the same name.
func TestServerForgets(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.PrivateSQS(t)
	b := opened(t, s.SQSServer, nil)
	topic := s.QueueName(t, "")
	_, messages := subscribe(t, b, brokers.SubscriberConfig{}, topic)
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, message.NewMessage("before", nil)); err != nil {
		t.Fatal(err)
	}
	msg, _ := receive(t, messages)
	msg.Ack()
	if err := s.RestartEmpty(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, message.NewMessage("lost", nil)); !errors.Is(err, sqs.ErrNoQueue) {
		t.Errorf("publishing to a queue that is gone: %v", err)
	}
	if err := p.Publish(topic, message.NewMessage("after", nil)); err != nil {
		t.Errorf("publishing to a queue that can be made again: %v", err)
	}
	if msg, _ := receive(t, messages); msg.UUID != "after" {
		t.Errorf("message %q came", msg.UUID)
	} else {
		msg.Ack()
	}
}

// TestPublishToAServerThatHangs: watermill-aws by itself waits for ever.
func TestPublishToAServerThatHangs(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.PrivateSQS(t)
	b := opened(t, s.SQSServer, func(c *sqs.Config) { c.Publish.Timeout = 10 * time.Second })
	topic := s.QueueName(t, "")
	publish(t, b, topic, message.NewMessage("before", nil))
	if err := s.Pause(); err != nil {
		t.Fatal(err)
	}
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, message.NewMessage("during", nil)); !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("publishing to a server that hangs: %v", err)
	}
	if err := s.Resume(); err != nil {
		t.Fatal(err)
	}
}
