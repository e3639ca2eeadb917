package amqp_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	theirs "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
)

// TestForeignProducer: a message of a program that knows nothing of Watermill is read with
// all that it carries, also when it comes again.
func TestForeignProducer(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Consume.RetryDelays = []time.Duration{100 * time.Millisecond}
		b := newBroker(t, config)
		topic := newTopic()
		out := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		at := time.Now().Truncate(time.Second)
		for _, p := range []amqp091.Publishing{
			{
				Headers: amqp091.Table{
					"text": "\xff\x00", "nil": nil, "yes": true, "bytes": []byte{0xfe}, "float": 1.5, "time": at, "byte": byte(3), "short": int16(-4),
					"decimal": amqp091.Decimal{Scale: 1, Value: 25}, "list": []any{"a", int32(1)}, "table": amqp091.Table{"b": amqp091.Table{}},
				},
				MessageId: "their id", AppId: "app", Timestamp: at, Body: []byte("\x00payload"),
			},
			{}, // nothing at all
		} {
			if err := channel(t, address).PublishWithContext(t.Context(), topic, "any key", true, false, p); err != nil {
				t.Fatal(err)
			}
			msg, d := receive(t, out)
			for again := range 2 {
				if msg.UUID != "" || string(msg.Payload) != string(p.Body) || d.NativeID != p.MessageId || !d.Time.IsZero() || d.Undecodable != nil || d.Suspect != (again > 0) {
					t.Errorf("UUID %q, payload %q, %+v", msg.UUID, msg.Payload, d)
				}
				if len(msg.Metadata) != len(p.Headers) {
					t.Errorf("metadata %q", msg.Metadata)
				}
				for name, want := range map[string]string{
					"text": "\xff\x00", "nil": "", "yes": "true", "bytes": "\xfe", "float": "1.5", "time": at.UTC().Format(time.RFC3339), "byte": "3",
					"short": "-4", "decimal": "2.5", "list": `["a",1]`, "table": `{"b":{}}`,
				} {
					if got := msg.Metadata[name]; len(p.Headers) > 0 && got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if again == 0 {
					msg, d, _ = giveBack(t, msg, out, brokers.GiveBack{})
				}
			}
			msg.Ack()
		}
	})
}

// TestWatermillAMQP: services on watermill-amqp and on this package understand each other,
// by each of its presets.
func TestWatermillAMQP(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		ours := parse(t, address)
		exchange := newTopic()
		for preset, config := range map[amqp.Preset]theirs.Config{
			amqp.PresetPubSub:  theirs.NewDurablePubSubConfig(address, theirs.GenerateQueueNameTopicNameWithSuffix("theirs")),
			amqp.PresetQueue:   theirs.NewDurableQueueConfig(address),
			amqp.PresetRouting: theirs.NewDurableTopicConfig(address, exchange, newTopic()),
		} {
			ours.Topology = amqp.Topology{Preset: preset, QueueType: amqp.QueueClassic} // as theirs
			if preset == amqp.PresetRouting {
				ours.Topology.Exchange = exchange
			}
			b := newBroker(t, ours)
			config.Publish.ConfirmDelivery = true
			config.Exchange.Durable = true // which NewDurableTopicConfig leaves out
			theirPublisher, err := theirs.NewPublisher(config, watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			theirSubscriber, err := theirs.NewSubscriber(config, watermill.NopLogger{})
			if err != nil {
				t.Fatal(err)
			}
			topic := newTopic()
			s := subscriber(t, b, brokers.SubscriberConfig{})
			out := subscribe(t, s, topic)
			sent := with("name", "value")
			if err := theirPublisher.Publish(topic, sent); err != nil {
				t.Fatal(err)
			}
			msg, _ := receive(t, out)
			if !msg.Equals(sent) {
				t.Errorf("%s: ours reads %q, %q", preset, msg.UUID, msg.Metadata)
			}
			msg.Ack()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}

			ctx, cancel := context.WithCancel(t.Context())
			theirOut, err := theirSubscriber.Subscribe(ctx, topic)
			if err != nil {
				t.Fatal(err)
			}
			sent = with("name", "value")
			if err := publisher(t, b).Publish(topic, sent); err != nil {
				t.Fatal(err)
			}
			select {
			case msg := <-theirOut:
				if !msg.Equals(sent) {
					t.Errorf("%s: theirs reads %q, %q", preset, msg.UUID, msg.Metadata)
				}
				msg.Ack()
			case <-time.After(within):
				t.Errorf("%s: theirs reads nothing", preset)
			}
			cancel()
			if err := theirSubscriber.Close(); err != nil {
				t.Error(err)
			}
			if err := theirPublisher.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestRoutingPatterns: a subscriber of PresetRouting may bind a pattern.
func TestRoutingPatterns(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string) {
		config := parse(t, address)
		config.Topology = amqp.Topology{Preset: amqp.PresetRouting, Exchange: newTopic()}
		b := newBroker(t, config)
		orders := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: newTopic()}), "orders.*")
		all := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: newTopic(), InFlight: 2}), "#")
		p := publisher(t, b)
		paid, shipped := newMessages(1)[0], newMessages(1)[0]
		if err := p.Publish("orders.paid", paid); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish("parcels.shipped", shipped); err != nil {
			t.Fatal(err)
		}
		expect := func(out <-chan *message.Message, topic string, want *message.Message) {
			msg, d := receive(t, out)
			if msg.UUID != want.UUID || d.Topic != topic {
				t.Errorf("%q came as %+v", msg.UUID, d)
			}
			msg.Ack()
		}
		expect(orders, "orders.*", paid)
		expect(all, "#", paid)
		expect(all, "#", shipped)
	})
}
