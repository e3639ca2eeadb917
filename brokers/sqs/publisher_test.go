package sqs_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func publisher(t testing.TB, b *sqs.Broker) message.Publisher {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPublishingIsInBatches: ten messages a request, fewer if they are large.
func TestPublishingIsInBatches(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	var config sqs.Config
	l := tap(&config)
	b := newBroker(t, s, config)
	publish(t, b, topic, newMessages(95)...)
	if n := l.requests("SendMessageBatch"); n != 10 {
		t.Errorf("95 messages took %d requests", n)
	}
	large := newMessages(5)
	for _, msg := range large {
		msg.Payload = bytes.Repeat([]byte("x"), 100<<10)
	}
	publish(t, b, topic, large...)
	if n := l.requests("SendMessageBatch"); n != 13 {
		t.Errorf("5 messages of 100 KiB took %d requests", n-10)
	}
	messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 32}), topic)
	for range 100 {
		msg, _ := receive(t, messages)
		msg.Ack()
	}
}

// TestTooLarge: the queue's own limit counts. ElasticMQ has one for all.
func TestTooLarge(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, map[string]string{"MaximumMessageSize": "2048"})
		b := newBroker(t, s, sqs.Config{})
		msg := newMessages(1)[0]
		limit := 2048
		if strings.HasSuffix(t.Name(), "ElasticMQ") {
			limit = 256 << 10
		}
		msg.Payload = bytes.Repeat([]byte("x"), limit)
		err := publisher(t, b).Publish(topic, newMessages(1)[0], msg)
		if !errors.Is(err, sqs.ErrTooLarge) {
			t.Errorf("%v", err)
		}
		says(t, err, "message 2 of 2", fmt.Sprint(limit+65, " bytes"), fmt.Sprint("the limit is ", limit), "MaximumMessageSize")
		nothing(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic), 300*time.Millisecond)
	})
}

// TestIDsOfFIFO: what is published twice under one id comes once, and without an id every
// message counts.
func TestIDsOfFIFO(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, map[string]string{"FifoQueue": "true", "ContentBasedDeduplication": "true"})
		b := newBroker(t, s, sqs.Config{Publish: sqs.Publish{GroupMetadata: "customer"}})
		same := func(id string) *message.Message {
			msg := message.NewMessage(id, []byte("the same"))
			msg.Metadata.Set("customer", "☃ ltd")
			return msg
		}
		twice := same("1")
		other := same(newID())
		other.Metadata.Set("MessageDeduplicationId", "2")
		again := same(newID())
		again.Metadata.Set("MessageDeduplicationId", "2")
		publish(t, b, topic, twice, twice, other, again, same(""), same(""))
		messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 10}), topic)
		ids := map[string]bool{}
		for range 4 {
			msg, d := receive(t, messages)
			if len(d.Key) != 64 || d.NativeID == "" || ids[d.NativeID] {
				t.Errorf("%+v", d)
			}
			ids[d.NativeID] = true
			msg.Ack()
		}
		if !ids["1"] || !ids["2"] {
			t.Errorf("%v", ids)
		}
		nothing(t, messages, 300*time.Millisecond)
	})
}

// TestManyFields: more metadata than SQS has attributes, and what it cannot carry.
func TestManyFields(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, nil)
		b := newBroker(t, s, sqs.Config{})
		sent := message.NewMessage(newID(), []byte("\x00\xff"))
		for i := range 40 {
			sent.Metadata.Set(fmt.Sprint("field-", i), fmt.Sprint(i))
		}
		sent.Metadata.Set("not a name", "\x00")
		publish(t, b, topic, sent)
		msg, _ := receive(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic))
		if !msg.Equals(sent) {
			t.Errorf("%q %q", msg.Metadata, msg.Payload)
		}
		msg.Ack()
	})
}

// TestThrottledPublishing is tried again until it works, or said.
func TestThrottledPublishing(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	config := sqs.Config{Publish: sqs.Publish{Timeout: 4 * time.Second}}
	l := tap(&config)
	b := newBroker(t, s, config)
	l.fail("SendMessageBatch", 400, "RequestThrottled", 4)
	publish(t, b, topic, newMessages(1)...)
	l.fail("SendMessageBatch", 400, "RequestThrottled", -1)
	err := publisher(t, b).Publish(topic, newMessages(12)...)
	if !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("%v", err)
	}
	says(t, err, "message 1 of 12", "throttled", "2 messages more of 12")
}
