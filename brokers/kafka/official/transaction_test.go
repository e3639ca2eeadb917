package official_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestTransactions: what was aborted never comes.
func TestTransactions(t *testing.T) {
	topic := newTopic(t, testenv.Kafka(t), 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(testenv.Kafka(t)...), kgo.TransactionalID(watermill.NewUUID()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for value, end := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	b := newBroker(t, official.Config{})
	publish(t, newPublisher(t, b), topic, newMessage("last"))
	_, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic}, topic)
	for _, want := range []string{"committed", "last"} {
		msg := next(t, messages)
		if got := string(msg.Payload); got != want {
			t.Errorf("%q came, not %q", got, want)
		}
		msg.Ack()
	}
}
