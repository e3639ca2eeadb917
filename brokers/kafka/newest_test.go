package kafka_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestNewestIsWhereTheGroupBegan: a new group skips what is there, and nothing that comes
// later, also when its first member leaves before it has settled anything.
func TestNewestIsWhereTheGroupBegan(t *testing.T) {
	t.Parallel()
	addresses := testenv.Kafka(t)
	for name, protocol := range rotation.Some(t, 1, protocols) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, group := newTopic(t, addresses, 1), uuid.NewString()
			put(t, addresses, topic, "old", 5)
			b := newBroker(t, kafka.Config{Consume: kafka.Consume{StartAtNewest: true, Protocol: protocol, CommitInterval: time.Hour}})
			config := brokers.SubscriberConfig{Group: group, DrainTimeout: 50 * time.Millisecond}
			first := subscriber(t, b, config)
			subscribe(t, first, topic)
			testenv.Eventually(t, "the first position is committed", func() bool { return committed(t, addresses, group, topic) == 5 })
			_ = first.Close()
			put(t, addresses, topic, "between", 1)
			second := subscriber(t, b, config)
			msg, _ := receive(t, subscribe(t, second, topic))
			if got := string(msg.Payload); got != "between0" {
				t.Errorf("%q came first", got)
			}
			_ = second.Close() // it is not settled
			put(t, addresses, topic, "later", 1)
			messages := subscribe(t, subscriber(t, b, config), topic)
			for _, want := range []string{"between0", "later0"} {
				msg, _ := receive(t, messages)
				if got := string(msg.Payload); got != want {
					t.Errorf("%q came, not %q", got, want)
				}
				msg.Ack()
			}
		})
	}
}
