package official_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestTopicMadeAgain deletes the topic under a subscriber, which goes on by itself when
// there is a new one of that name.
func TestTopicMadeAgain(t *testing.T) {
	addresses := testenv.Kafka(t)
	topic := newTopic(t, addresses, 1)
	b := newBroker(t, official.Config{})
	_, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	p := newPublisher(t, b)
	for range 3 {
		publish(t, p, topic, newMessage("before"))
		next(t, messages).Ack()
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(addresses...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	ctx := context.Background()
	if _, err := admin.DeleteTopic(ctx, topic); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(within)
	for { // the name is free a moment later
		if _, err = admin.CreateTopic(ctx, 1, 1, nil, topic); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		<-time.After(50 * time.Millisecond)
	}
	sent := newMessage("after")
	for { // the publisher knows the old topic
		if err = p.Publish(topic, sent); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	msg := next(t, messages)
	if msg.UUID != sent.UUID {
		t.Errorf("message %q came, published was %q", msg.Payload, sent.Payload)
	}
	msg.Ack()
}
