package kafka_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestCloseWhileTheBrokerHangs: a broker that says nothing any more keeps nobody from
// leaving. What it could not be told comes again.
func TestCloseWhileTheBrokerHangs(t *testing.T) {
	t.Parallel()
	if !rotation.Today(t, "kafka", "kafka", "kafka+watermill") {
		return
	}
	const drain = time.Second
	server := testenv.PrivateKafka(t, attentive)
	addresses := []string{server.Address()}
	type member struct {
		broker       *kafka.Broker
		subscriber   *kafka.Subscriber
		topic, group string
		of           string // coordinates of held
		held         *message.Message
	}
	join := func(protocol kafka.Protocol, topic, group string) (member, <-chan *message.Message) {
		b := newBroker(t, kafka.Config{Brokers: addresses, Consume: kafka.Consume{Protocol: protocol, SessionTimeout: 3 * time.Second}})
		s := subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 2, DrainTimeout: drain})
		return member{broker: b, subscriber: s, topic: topic, group: group}, subscribe(t, s, topic)
	}
	members := map[kafka.Protocol]member{}
	for _, protocol := range protocols {
		topic := newTopic(t, addresses, 2)
		fill(t, addresses, topic, 2, 1)
		m, messages := join(protocol, topic, uuid.NewString())
		receive(t, messages)
		held, d := receive(t, messages)
		m.held, m.of = held, d.Coordinates
		pings(t, m.broker, true)
		members[protocol] = m
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		pings(t, m.broker, false)
	}
	var closing sync.WaitGroup
	for protocol, m := range members {
		closing.Go(func() {
			started := time.Now()
			_ = m.subscriber.Close()
			took := time.Since(started)
			t.Logf("%s: Close took %s", protocol, took)
			if took < drain || took > drain+kafka.LeaveTimeout+15*time.Second {
				t.Errorf("%s: Close took %s, its handlers had %s", protocol, took, drain)
			}
			if m.held.Context().Err() == nil {
				t.Errorf("%s: the context of a handler goes on after Close", protocol)
			}
			started = time.Now()
			_ = m.broker.Close()
			if took := time.Since(started); took > 20*time.Second {
				t.Errorf("%s: Close of the broker took %s", protocol, took)
			}
		})
	}
	closing.Wait()
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	for protocol, m := range members {
		_, messages := join(protocol, m.topic, m.group)
		for {
			msg, d := receive(t, messages)
			msg.Ack()
			if d.Coordinates == m.of {
				break
			}
		}
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
