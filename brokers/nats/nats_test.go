package nats_test

import (
	"errors"
	"net"
	"strings"
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
	sent := newMessage()
	publish(t, b, topic, sent)
	third, d := receive(t, messages)
	for third.UUID != sent.UUID { // the first two may come again, as if for the first time
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
	msg, d := receive(t, messages)
	msg.Ack()
	if !d.Suspect {
		t.Error("a message of a consumer that was made anew is not suspect")
	}
}

// TestStreamThatIsGoneAndBack: a server that has lost its disk. The subscriber says that
// nothing can reach it, and goes on when the stream is there again.
func TestStreamThatIsGoneAndBack(t *testing.T) {
	t.Parallel()
	address := testenv.NATS(t)
	b := start(t, address, func(c *nats.Config) { c.CreateStreams = false })
	js, topic := stream(t, address), newTopic()
	config := jetstream.StreamConfig{Name: "gone-" + watermill.NewShortUUID(), Subjects: []string{topic}}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group", DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	receiving := s.(brokers.Receiver).Receiving
	if err := receiving(); err != nil {
		t.Error(err)
	}
	if err := js.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the subscriber says that nothing can reach it", func() bool { return errors.Is(receiving(), brokers.ErrUnavailable) })
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	publish(t, b, topic, newMessage())
	msg, _ := receive(t, messages)
	msg.Ack()
	if err := receiving(); err != nil {
		t.Error(err)
	}
}

// TestStreamThatConfirmsNothing: what is never answered must not keep other messages from
// being published.
func TestStreamThatConfirmsNothing(t *testing.T) {
	t.Parallel()
	address := testenv.NATS(t)
	b := start(t, address, func(c *nats.Config) { c.Publish.Timeout = time.Second })
	js, silent, healthy := stream(t, address), newTopic(), newTopic()
	config := jetstream.StreamConfig{Name: "silent-" + watermill.NewShortUUID(), Subjects: []string{silent}, NoAck: true}
	if _, err := js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	messages := make([]*message.Message, 4100)
	for i := range messages {
		messages[i] = newMessage()
	}
	begun := time.Now()
	if err := p.Publish(silent, messages...); !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("%.200v", err)
	}
	if took := time.Since(begun); took > within/2 {
		t.Errorf("Publish took %s", took)
	}
	testenv.Eventually(t, "the healthy topic is published to", func() bool { return p.Publish(healthy, newMessage()) == nil })
}

// TestAckWaitIsTheServers: a consumer that was made with a shorter one than is configured
// here must hear of a message in hand in time.
func TestAckWaitIsTheServers(t *testing.T) {
	t.Parallel()
	address := testenv.NATS(t)
	topic := newTopic()
	hasty, err := start(t, address, func(c *nats.Config) { c.Consume.AckWait = time.Second }).Subscriber(brokers.SubscriberConfig{Group: "group"})
	if err == nil {
		err = hasty.(message.SubscribeInitializer).SubscribeInitialize(topic)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, address, func(c *nats.Config) { c.Consume.AckWait = time.Minute })
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group", InFlight: 2, DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	publish(t, b, topic, newMessage())
	msg, _ := receive(t, messages)
	select {
	case again := <-messages:
		t.Errorf("%q came again while it was in hand", again.UUID)
	case <-time.After(3 * time.Second):
	}
	msg.Ack()
}

func TestServerThatSaysNothing(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	begun := time.Now()
	_, err = nats.New(t.Context(), nats.Config{Servers: []string{address, address, address}, ConnectTimeout: 500 * time.Millisecond})
	if !errors.Is(err, brokers.ErrUnavailable) || time.Since(begun) > within/2 {
		t.Errorf("%v after %s", err, time.Since(begun))
	}
	_, err = nats.New(t.Context(), nats.Config{Servers: []string{"user:s3cret@" + address}})
	if err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%v", err)
	}
}
