package nats_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/nats"
	"github.com/millpond-go/millpond/internal/testenv"
)

const within = 20 * time.Second

func start(t testing.TB, address string, change func(*nats.Config)) *nats.Broker {
	t.Helper()
	b := open(t, address, change).(*nats.Broker)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	return b
}

func subscribe(t testing.TB, b *nats.Broker, topic string) (<-chan *message.Message, error) {
	t.Helper()
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group", DrainTimeout: time.Second, Logger: testenv.PanickingLogger{}})
	if err != nil {
		t.Fatal(err)
	}
	return s.Subscribe(t.Context(), topic)
}

func publish(t testing.TB, b *nats.Broker, topic string, messages ...*message.Message) {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err == nil {
		err = p.Publish(topic, messages...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func receive(t testing.TB, messages <-chan *message.Message) (*message.Message, brokers.Delivery) {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the channel is closed")
		}
		d, _ := brokers.DeliveryOf(msg)
		return msg, d
	case <-time.After(within):
		t.Fatalf("no message came within %s", within)
		return nil, brokers.Delivery{}
	}
}

func newTopic() string { return "test." + watermill.NewShortUUID() }

func newMessage() *message.Message { return message.NewMessage(watermill.NewUUID(), []byte("x")) }

func stream(t testing.TB, address string) jetstream.JetStream {
	t.Helper()
	conn, err := natsgo.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestTopicWithoutStream(t *testing.T) {
	t.Parallel()
	b := start(t, testenv.NATS(t), func(c *nats.Config) { c.CreateStreams = false })
	topic := newTopic()
	if _, err := subscribe(t, b, topic); !errors.Is(err, nats.ErrNoStream) {
		t.Errorf("subscribe: %v", err)
	}
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(topic, newMessage()); !errors.Is(err, nats.ErrNoStream) {
		t.Errorf("publish: %v", err)
	}
	if err := p.Publish(topic, nil); err == nil {
		t.Error("a nil message was published")
	}
	for _, bad := range []string{"", "a..b", "a.*", "a.>", "a b", "a\n"} {
		if _, err := subscribe(t, b, bad); !errors.Is(err, nats.ErrTopic) {
			t.Errorf("subscribe to %q: %v", bad, err)
		}
		if err := p.Publish(bad, newMessage()); !errors.Is(err, nats.ErrTopic) {
			t.Errorf("publish to %q: %v", bad, err)
		}
	}
}

// TestManyAtOnce publishes more than the client lets be outstanding.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	b := start(t, testenv.NATS(t), nil)
	topic := newTopic()
	if _, err := subscribe(t, b, topic); err != nil {
		t.Fatal(err)
	}
	messages := make([]*message.Message, 12_000)
	for i := range messages {
		messages[i] = newMessage()
	}
	publish(t, b, topic, messages...)
}

// TestConsumerWithOtherSettings: the server's limit of deliveries, the wait for acks and
// what a consumer reads are the server's, whatever is configured here.
func TestConsumerWithOtherSettings(t *testing.T) {
	t.Parallel()
	address := testenv.NATS(t)
	b, limited := start(t, address, nil), start(t, address, func(c *nats.Config) { c.Consume.DeliveryLimit = 3 })
	topic := newTopic()
	if _, err := subscribe(t, limited, topic); err != nil {
		t.Fatal(err)
	}
	if _, err := subscribe(t, b, topic); !errors.Is(err, nats.ErrConsumerDiffers) {
		t.Errorf("a consumer with a limit that is not declared: %v", err)
	}
}

// TestMessageAtItsLimitIsKept: the server delivers it no more and says so once.
func TestMessageAtItsLimitIsKept(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateNATS(t)
	b := start(t, server.URL(), func(c *nats.Config) { c.Consume.DeliveryLimit = 2 })
	topic := newTopic()
	messages, err := subscribe(t, b, topic)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, topic, newMessage())
	for range 2 {
		msg, _ := receive(t, messages)
		msg.Nack()
	}
	js := stream(t, server.URL())
	testenv.Eventually(t, "the advisory is kept", func() bool {
		kept, err := js.Stream(t.Context(), "millpond_max_deliveries")
		return err == nil && kept.CachedInfo().State.Msgs == 1
	})
	name, err := js.StreamNameBySubject(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	if kept, err := js.Stream(t.Context(), name); err != nil || kept.CachedInfo().State.Msgs != 1 {
		t.Errorf("the message is not in its stream any more: %v", err)
	}
}

// TestSuspectAfterAServerThatForgot: a server that was killed may give out as new what it
// had delivered before.
func TestSuspectAfterAServerThatForgot(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateNATS(t)
	b := start(t, server.URL(), nil)
	topic := newTopic()
	messages, err := subscribe(t, b, topic)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, topic, newMessage(), newMessage())
	first, d := receive(t, messages)
	if d.Suspect {
		t.Error("the first message is suspect")
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the broker is connected again", func() bool { return b.Ping(t.Context()) == nil })
	first.Ack()
	second, d := receive(t, messages)
	if !d.Suspect {
		t.Errorf("a message from before the new connection is not suspect: %+v", d)
	}
	second.Ack()
	publish(t, b, topic, newMessage())
	third, d := receive(t, messages)
	for d.Count > 1 { // of the first two one may come again: its ack was lost
		third.Ack()
		third, d = receive(t, messages)
	}
	third.Ack()
	if d.Suspect {
		t.Error("a message from after the new connection is suspect")
	}
}

// TestFunctionsThatPanic: a message that the program's own function cannot read is
// delivered as one that nobody can read, and the next one comes.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	b := start(t, testenv.NATS(t), func(c *nats.Config) {
		c.Consume.Unmarshal = func(m jetstream.Msg) (*message.Message, error) {
			if testenv.Misread(m.Data()) {
				return nil, nil //nolint:nilnil // which is what it must not do
			}
			return message.NewMessage("well", nil), nil
		}
	})
	topic := newTopic()
	messages, err := subscribe(t, b, topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, payload := range append(testenv.Misreads(), "well") {
		publish(t, b, topic, message.NewMessage("", []byte(payload)))
		msg, d := receive(t, messages)
		if (d.Undecodable == nil) != (payload == "well") || (msg.UUID == "well") != (payload == "well") {
			t.Errorf("%s: %q, %v", payload, msg.Payload, d.Undecodable)
		}
		msg.Ack()
	}
}

// TestDeletedConsumerIsMadeAgain: somebody has tidied up. The messages come all again,
// which the inbox is for.
func TestDeletedConsumerIsMadeAgain(t *testing.T) {
	t.Parallel()
	address := testenv.NATS(t)
	b := start(t, address, nil)
	topic := newTopic()
	messages, err := subscribe(t, b, topic)
	if err != nil {
		t.Fatal(err)
	}
	js := stream(t, address)
	name, err := js.StreamNameBySubject(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	from, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for consumer := range from.ConsumerNames(t.Context()).Name() {
		if err := from.DeleteConsumer(t.Context(), consumer); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, b, topic, newMessage())
	msg, _ := receive(t, messages)
	msg.Ack()
}
