package kafka_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestSubscriberThatTheGroupHasGivenUpSaysSo: after a session timeout nothing is consumed,
// although the cluster answers everybody else. It is over when the group has taken it back.
func TestSubscriberThatTheGroupHasGivenUpSaysSo(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateKafka(t, attentive)
	addresses := []string{server.Address()}
	for _, protocol := range rotation.Some(t, 1, protocols) {
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

// TestSilenceWhileTheGroupGathers: the answer to a join or a sync may take as long as the
// group needs to gather; a group that has answered is silent for the session timeout at most.
func TestSilenceWhileTheGroupGathers(t *testing.T) {
	const timeout = 3 * time.Second
	type request = kmsg.Key
	const nothing = request(-1)
	for name, c := range map[string]struct {
		answered []request
		waits    request // for its answer
		gone     bool    // after the session timeout
	}{
		"heartbeat answered": {answered: []request{kmsg.Heartbeat}, waits: nothing, gone: true},
		"join waits":         {answered: []request{kmsg.Heartbeat}, waits: kmsg.JoinGroup},
		"join answered":      {answered: []request{kmsg.Heartbeat, kmsg.JoinGroup}, waits: nothing, gone: true},
		"sync waits":         {answered: []request{kmsg.Heartbeat, kmsg.JoinGroup}, waits: kmsg.SyncGroup},
		"sync answered":      {answered: []request{kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup}, waits: nothing, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := kafka.NewMembership(&kafka.Consume{SessionTimeout: timeout})
				var broker kgo.BrokerMetadata
				for _, key := range c.answered {
					m.OnBrokerWrite(broker, key.Int16(), 0, 0, 0, nil)
					<-time.After(10 * time.Second) // of the bubble's clock: the group gathers
					m.OnBrokerE2E(broker, key.Int16(), kgo.BrokerE2E{})
					if err := m.Problem(); err != nil {
						t.Errorf("%s was answered just now: %v", key.Name(), err)
					}
				}
				if c.waits != nothing {
					m.OnBrokerWrite(broker, c.waits.Int16(), 0, 0, 0, nil)
				}
				<-time.After(timeout + time.Second)
				if err := m.Problem(); (err != nil) != c.gone {
					t.Errorf("after the session timeout: %v", err)
				}
				<-time.After(time.Hour)
				if m.Problem() == nil {
					t.Error("an hour of silence is no problem")
				}
			})
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
