package official_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestNewestIsWhereTheGroupBegan: a new group skips what is there, and nothing that comes
// later, also when its first member leaves before it has settled anything.
func TestNewestIsWhereTheGroupBegan(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, official.Config{Consume: official.Consume{StartAtNewest: true}})
	p := newPublisher(t, b)
	publish(t, p, topic, message.NewMessage("old", nil))
	config := brokers.SubscriberConfig{Group: topic, DrainTimeout: 50 * time.Millisecond}
	first, _ := subscribe(t, b, config, topic)
	client, err := kgo.NewClient(kgo.SeedBrokers(testenv.Kafka(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	testenv.Eventually(t, "the first position is committed", func() bool {
		offsets, err := kadm.NewClient(client).FetchOffsets(t.Context(), topic)
		at, ok := offsets.Lookup(topic, 0)
		return err == nil && ok && at.At == 1
	})
	_ = first.Close()
	publish(t, p, topic, message.NewMessage("between", nil))
	second, messages := subscribe(t, b, config, topic)
	if msg := next(t, messages); msg.UUID != "between" {
		t.Errorf("%q came first", msg.UUID)
	}
	_ = second.Close() // it is not settled
	publish(t, p, topic, message.NewMessage("later", nil))
	_, messages = subscribe(t, b, config, topic)
	for _, want := range []string{"between", "later"} {
		msg := next(t, messages)
		if msg.UUID != want {
			t.Errorf("%q came, not %q", msg.UUID, want)
		}
		msg.Ack()
	}
}
