package kafka_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestCloseWhileTheBrokerHangs: a broker that says nothing any more keeps nobody from
// leaving. What it could not be told comes again.
func TestCloseWhileTheBrokerHangs(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	for name, protocol := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.PrivateKafka(t)
			addresses := []string{server.Address()}
			topic, group := newTopic(t, addresses, 2), uuid.NewString()
			fill(t, addresses, topic, 2, 1)
			b := newBroker(t, kafka.Config{Brokers: addresses, Consume: kafka.Consume{Protocol: protocol, SessionTimeout: 2 * time.Second}})
			s := subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 2, DrainTimeout: drain})
			messages := subscribe(t, s, topic)
			acked, of := receive(t, messages)
			held, _ := receive(t, messages)
			if err := server.Pause(); err != nil {
				t.Fatal(err)
			}
			acked.Ack()
			started := time.Now()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			took := time.Since(started)
			t.Logf("Close took %s", took)
			if took < drain || took > drain+kafka.LeaveTimeout+3*time.Second {
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
			if took := time.Since(started); took > 8*time.Second {
				t.Errorf("Close of the broker took %s", took)
			}
			if err := server.Resume(); err != nil {
				t.Fatal(err)
			}
			b = newBroker(t, kafka.Config{Brokers: addresses, Consume: kafka.Consume{Protocol: protocol, SessionTimeout: 2 * time.Second}})
			messages = subscribe(t, subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 2}), topic)
			first, d := receive(t, messages)
			first.Ack()
			second, e := receive(t, messages)
			second.Ack()
			if d.Coordinates != of.Coordinates && e.Coordinates != of.Coordinates {
				t.Errorf("%s and %s came, and not %s", d.Coordinates, e.Coordinates, of.Coordinates)
			}
		})
	}
}
