package official_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// within is how long tests wait for what must happen.
const within = 30 * time.Second

func newTopic() string { return "official-" + uuid.NewString() }

func newBroker(t *testing.T, config official.Config) *official.Broker {
	t.Helper()
	b, err := official.New(t.Context(), config)
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

func newPublisher(t *testing.T, b brokers.Broker) message.Publisher {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func publish(t *testing.T, p message.Publisher, topic string, messages ...*message.Message) {
	t.Helper()
	if err := p.Publish(topic, messages...); err != nil {
		t.Fatal(err)
	}
}

func subscribe(t *testing.T, b brokers.Broker, group, topic string) <-chan *message.Message {
	t.Helper()
	s, err := b.Subscriber(brokers.SubscriberConfig{Group: group})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.Subscribe(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, ok := <-messages:
		if !ok {
			t.Fatal("the channel is closed")
		}
		return msg
	case <-time.After(within):
		t.Fatalf("no message within %s", within)
	}
	return nil
}

func newMessage(payload string) *message.Message {
	msg := message.NewMessage(uuid.NewString(), []byte(payload))
	msg.Metadata.Set("binary", "\xff\x00")
	return msg
}

// TestPlainWatermillAMQP exchanges messages with a program on watermill-amqp alone, which
// declares classic queues.
func TestPlainWatermillAMQP(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		topic := newTopic()
		config := parse(t, address)
		config.Topology.QueueType = amqp.QueueClassic
		b := newBroker(t, config)
		theirConfig := wmamqp.NewDurablePubSubConfig(address, wmamqp.GenerateQueueNameTopicNameWithSuffix("theirs"))
		theirConfig.Marshaler = official.Marshaler{}
		theirs, err := wmamqp.NewSubscriber(theirConfig, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		in, err := theirs.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		ours := subscribe(t, b, "theirs", topic+"-2") // their queue's name, declared alike
		publisher, err := wmamqp.NewPublisher(theirConfig, watermill.NopLogger{})
		if err != nil {
			t.Fatal(err)
		}
		defer publisher.Close()

		sent := newMessage("theirs")
		publish(t, publisher, topic+"-2", sent)
		got := next(t, ours)
		if !got.Equals(sent) {
			t.Errorf("theirs became %+v", got)
		}
		got.Ack()
		sent = newMessage("ours")
		publish(t, newPublisher(t, b), topic, sent)
		for range 2 { // the second time with the headers of a redelivery
			if got = next(t, in); string(got.Payload) != "ours" || got.UUID != sent.UUID {
				t.Errorf("ours became %+v", got)
			}
			got.Nack()
		}
		next(t, in).Ack()
	})
}

// TestOwnAdapter shares a group with brokers/amqp.
func TestOwnAdapter(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		topic := newTopic()
		config := parse(t, address)
		b := newBroker(t, config)
		own, err := amqp.New(t.Context(), config.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		groups := map[string]<-chan *message.Message{"official": subscribe(t, b, "official", topic), "own": subscribe(t, own, "own", topic)}
		if _, err := own.Subscriber(brokers.SubscriberConfig{Group: "official"}); err != nil {
			t.Error(err)
		}
		for from, broker := range map[string]brokers.Broker{"official": b, "own": own} {
			sent := newMessage(from)
			publish(t, newPublisher(t, broker), topic, sent)
			for to, messages := range groups {
				got := next(t, messages)
				facts, _ := brokers.DeliveryOf(got)
				if !got.Equals(sent) || facts.NativeID != sent.UUID || facts.Count != 1 || facts.Suspect {
					t.Errorf("from %s to %s: %+v, %+v", from, to, got, facts)
				}
				got.Ack()
			}
		}
	})
}

// TestNothingOfALostQueueReachesAHandler deletes a queue under its consumer, of which
// watermill-amqp makes an empty message. The queue is made again.
func TestNothingOfALostQueueReachesAHandler(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		topic := newTopic()
		b := newBroker(t, parse(t, address))
		messages, publisher := subscribe(t, b, "group", topic), newPublisher(t, b)
		publish(t, publisher, topic, newMessage("before"))
		next(t, messages).Ack()
		if _, err := channel(t, address).QueueDelete(topic+"_group", false, false, false); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(within); ; {
			publish(t, publisher, topic, newMessage("after")) // lost while there is no queue
			select {
			case msg := <-messages:
				if string(msg.Payload) != "after" || msg.UUID == "" {
					t.Errorf("a handler gets %+v", msg)
				}
				msg.Ack()
				return
			case <-time.After(100 * time.Millisecond):
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing comes any more")
			}
		}
	})
}

// TestCutConnections: a subscriber finds its way back, and nothing is lost.
func TestCutConnections(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		const cuts, each = 5, 10
		topic := newTopic()
		var taps tap
		config := parse(t, address)
		config.Watermill = taps.lay
		b := tapped{newBroker(t, config), &taps}
		s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group"})
		if err != nil {
			t.Fatal(err)
		}
		messages, err := s.Subscribe(t.Context(), topic)
		if err != nil {
			t.Fatal(err)
		}
		publisher, missing := newPublisher(t, b), make(map[string]bool)
		for range cuts {
			for range each {
				msg := newMessage("")
				missing[msg.UUID] = true
				publish(t, publisher, topic, msg)
			}
			msg := next(t, messages)
			s.(*subscriber).cut(false)
			msg.Ack() // too late: it comes again
		}
		for len(missing) > 0 {
			msg := next(t, messages)
			delete(missing, msg.UUID)
			msg.Ack()
		}
	})
}

// TestForeignHeaders reads what DefaultMarshaler cannot, again and again.
func TestForeignHeaders(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		topic := newTopic()
		messages := subscribe(t, newBroker(t, parse(t, address)), "group", topic)
		err := channel(t, address).PublishWithContext(t.Context(), topic, "", true, false, amqp091.Publishing{
			Headers:   amqp091.Table{"number": int64(7), "list": []any{"a", nil}, "_watermill_amqp_redelivered": "mine"},
			MessageId: "id", Body: []byte("payload"),
		})
		if err != nil {
			t.Fatal(err)
		}
		for count := 1; count <= 3; count++ {
			msg := next(t, messages)
			facts, _ := brokers.DeliveryOf(msg)
			if msg.Metadata.Get("number") != "7" || msg.Metadata.Get("list") != `["a",null]` || msg.Metadata.Get("_watermill_amqp_redelivered") != "mine" ||
				len(msg.Metadata) != 3 || facts.NativeID != "id" || facts.Count != count || facts.Suspect != (count > 1) {
				t.Errorf("%+v, %+v", msg, facts)
			}
			if count < 3 {
				msg.Nack()
			} else {
				msg.Ack()
			}
		}
	})
}

// TestRouting binds a pattern to an exchange.
func TestRouting(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		config := parse(t, address)
		config.Topology.Preset, config.Topology.Exchange = amqp.PresetRouting, newTopic()
		b := newBroker(t, config)
		messages := subscribe(t, b, config.Topology.Exchange, "orders.*")
		publish(t, newPublisher(t, b), "orders.eu", newMessage("eu"))
		if msg := next(t, messages); string(msg.Payload) != "eu" || !msg.Ack() {
			t.Errorf("%+v", msg)
		}
	})
}
