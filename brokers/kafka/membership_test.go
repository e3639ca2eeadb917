package kafka_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestSubscriberThatTheGroupHasGivenUpSaysSo: after a session timeout nothing is consumed,
// although the cluster answers everybody else. It is over when the group has taken it back.
func TestSubscriberThatTheGroupHasGivenUpSaysSo(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateKafka(t, attentive)
	addresses := []string{server.Address()}
	for _, protocol := range protocols {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, addresses, 1)
			fill(t, addresses, topic, 1, 1)
			b := newBroker(t, kafka.Config{Brokers: addresses, Consume: kafka.Consume{Protocol: protocol, SessionTimeout: 3 * time.Second}})
			frost := kafka.Freezable(b)
			config := brokers.SubscriberConfig{Group: uuid.NewString(), DrainTimeout: time.Second}
			s := subscriber(t, b, config)
			if err := s.Receiving(); err != nil {
				t.Errorf("nothing is subscribed to yet: %v", err)
			}
			messages := subscribe(t, s, topic)
			msg, _ := receive(t, messages)
			msg.Ack()
			receiving(t, s, true)

			idle := subscriber(t, b, config) // a member without partitions
			subscribe(t, idle, topic)
			receiving(t, idle, true)

			thaw := frost.Freeze()
			receiving(t, s, false)
			receiving(t, idle, false)
			pings(t, b, true)
			thaw()
			receiving(t, s, true)
			receiving(t, idle, true)
			pings(t, b, true)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := s.Receiving(); err != nil {
				t.Errorf("a closed subscriber: %v", err)
			}
		})
	}
}

// receiving waits until a subscriber receives, or no longer does.
func receiving(t *testing.T, s *kafka.Subscriber, want bool) {
	t.Helper()
	var err error
	testenv.Eventually(t, fmt.Sprintf("receiving is %t", want), func() bool {
		err = s.Receiving()
		return (err == nil) == want
	})
	if err != nil && !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("the error is %v", err)
	}
}
