package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestPublishToATopicMadeAgain: a publisher that has published to the old topic finds
// the new one, by itself, and what it says it has published is there.
func TestPublishToATopicMadeAgain(t *testing.T) {
	t.Parallel()
	addresses := testenv.Kafka(t)
	topic := newTopic(t, addresses, 1)
	p := publisher(t, newBroker(t, kafka.Config{Publish: kafka.Publish{Timeout: 5 * time.Second}}))
	if err := p.Publish(topic, message.NewMessage("old", nil)); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(client(t, addresses)).DeleteTopic(context.Background(), topic); err != nil {
		t.Fatal(err)
	}
	createTopic(t, addresses, topic, 3, nil)
	started := time.Now()
	published := map[string]bool{}
	for i := 0; len(published) < 5; i++ {
		id := fmt.Sprint("new", i)
		err := p.Publish(topic, message.NewMessage(id, nil))
		switch {
		case err == nil:
			published[id] = true
			continue
		case len(published) > 0:
			t.Errorf("the topic was found, and then Publish returned %v", err)
		case !errors.Is(err, kafka.ErrNoTopic) && !errors.Is(err, brokers.ErrUnavailable):
			t.Errorf("Publish returned %v", err)
		}
		if time.Since(started) > within {
			t.Fatalf("Publish still returns %v", err)
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Logf("the new topic was found after %s", time.Since(started))
	for _, r := range read(t, topic, len(published)) {
		delete(published, string(r.Headers[0].Value))
	}
	if len(published) > 0 {
		t.Errorf("not there are %v", published)
	}
}
