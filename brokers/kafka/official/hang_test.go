package official_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/official"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestCloseWhileTheBrokerHangs: a broker that says nothing any more keeps nobody from
// leaving.
func TestCloseWhileTheBrokerHangs(t *testing.T) {
	if !rotation.Today(t, "kafka+watermill", "kafka", "kafka+watermill") {
		return
	}
	const drain = time.Second
	server := testenv.PrivateKafka(t)
	addresses := []string{server.Address()}
	topic := newTopic(t, addresses, 2)
	b, err := official.New(context.Background(), official.Config{
		Brokers: addresses, ConnectTimeout: 2 * time.Second,
		// The library that is left behind ends at its first error: when sarama opens a
		// connection once more, it races with its own reader of the one before.
		Sarama: func(c *sarama.Config) { c.Metadata.Retry.Max = 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	s, messages := subscribe(t, b, brokers.SubscriberConfig{Group: topic, InFlight: 2, DrainTimeout: drain}, topic)
	p := newPublisher(t, b)
	publish(t, p, topic, message.NewMessage("1", nil), message.NewMessage("2", nil))
	held := next(t, messages)
	pings(t, b, true)
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	pings(t, b, false)
	started := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	took := time.Since(started)
	t.Logf("Close took %s", took)
	if took > drain+5*time.Second+15*time.Second {
		t.Errorf("Close took %s, its handlers had %s", took, drain)
	}
	select {
	case <-held.Context().Done():
	default:
		t.Error("the context of a handler goes on after Close")
	}
	started = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("Close of the broker took %s", time.Since(started))
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
}

// pings checks whether the broker says that its server answers, or that it does not.
func pings(t *testing.T, b brokers.Pinger, want bool) {
	t.Helper()
	ctx := t.Context()
	if !want {
		paused, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		ctx = paused
	}
	if err := b.Ping(ctx); (err == nil) != want || !want && !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("Ping returned %v", err)
	}
}
