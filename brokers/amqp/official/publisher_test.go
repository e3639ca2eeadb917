package official_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/brokers/amqp/official"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// TestQueueIsThereBeforeTheFirstMessage: the preset queue loses nothing that is published
// before anybody subscribes.
func TestQueueIsThereBeforeTheFirstMessage(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		topic := newTopic()
		config := parse(t, address)
		config.Topology.Preset = amqp.PresetQueue
		b := newBroker(t, config)
		publish(t, newPublisher(t, b), topic, newMessage("early"))
		next(t, subscribe(t, b, "any", topic)).Ack()
	})
}

func TestDeclaredOtherwise(t *testing.T) {
	t.Parallel()
	byTurns(t, func(t *testing.T, address string, _ rabbitmq.Version) {
		topic := newTopic()
		ch := channel(t, address)
		if _, err := ch.QueueDeclare(topic+"_group", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := ch.ExchangeDeclare(topic, "direct", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		b := newBroker(t, parse(t, address))
		s, err := b.Subscriber(brokers.SubscriberConfig{Group: "group"})
		if err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"Subscribe": func() error { _, err := s.Subscribe(t.Context(), topic); return err }(),
			"Publish":   newPublisher(t, b).Publish(topic, newMessage("")),
		} {
			if !errors.Is(err, amqp.ErrDeclaredOtherwise) || !strings.Contains(err.Error(), "inequivalent arg") {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	config := parse(t, testenv.RabbitMQ(t, rabbitmq.Packaged))
	config.Publish.MaxBytes = 10
	publisher := newPublisher(t, newBroker(t, config))
	long := newMessage("")
	long.Metadata.Set("long", strings.Repeat("x", 200_000))
	for says, msg := range map[string]*message.Message{
		"it has 11 bytes, max_message_bytes is 10": newMessage("01234567890"),
		"frame_max of 131072":                      long,
	} {
		err := publisher.Publish(newTopic(), newMessage("first"), msg)
		if !errors.Is(err, amqp.ErrTooLarge) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "message 2 of 2") {
			t.Errorf("%v does not say %q", err, says)
		}
	}
	for _, topic := range []string{"", strings.Repeat("t", 256)} {
		if err := publisher.Publish(topic, newMessage("")); err == nil || !strings.Contains(err.Error(), "the topic has") {
			t.Errorf("published to %.10q: %v", topic, err)
		}
	}
}

// TestMemoryAlarm: a broker that takes no messages is no reason to wait for ever.
func TestMemoryAlarm(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateRabbitMQ(t, rabbitmq.Newest)
	config := parse(t, server.URL())
	config.Publish.Timeout = time.Second
	b := newBroker(t, config)
	publisher, topic := newPublisher(t, b), newTopic()
	messages := subscribe(t, b, "group", topic)
	publish(t, publisher, topic, newMessage("before"))
	next(t, messages).Ack()
	watermark := func(mark string) {
		if err := server.Control(t.Context(), "set_vm_memory_high_watermark", "absolute", mark); err != nil {
			t.Fatal(err)
		}
	}
	watermark("1MB")
	if err := publisher.Publish(topic, newMessage("blocked")); !errors.Is(err, brokers.ErrUnavailable) || !strings.Contains(err.Error(), "within 1s") {
		t.Errorf("the error is %v", err)
	}
	watermark("512MB")
	testenv.Eventually(t, "messages are taken again", func() bool { return publisher.Publish(topic, newMessage("after")) == nil })
	msg := next(t, messages) // the blocked one may have come through
	for string(msg.Payload) != "after" {
		msg.Ack()
		msg = next(t, messages)
	}
	msg.Ack()
}

// TestCloseWithABrokerThatHangs returns soon.
func TestCloseWithABrokerThatHangs(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateRabbitMQ(t, rabbitmq.Packaged)
	b, err := official.New(t.Context(), parse(t, server.URL()))
	if err != nil {
		t.Fatal(err)
	}
	publisher, topic := newPublisher(t, b), newTopic()
	messages := subscribe(t, b, "group", topic)
	publish(t, publisher, topic, newMessage(""))
	next(t, messages).Ack()
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > within {
		t.Errorf("it took %v", took)
	}
}
