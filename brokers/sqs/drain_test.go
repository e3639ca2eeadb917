package sqs_test

import (
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestCloseLeavesReceivesAlone: a message that comes while a receive under way is the last
// one goes to the next subscriber at once. Of a receive that was cancelled it would be
// hidden for a minute.
func TestCloseLeavesReceivesAlone(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	config := sqs.Config{Consume: sqs.Consume{Visibility: time.Minute, Wait: 3 * time.Second}}
	l := tap(&config)
	receiving := make(chan struct{}, 100)
	l.seen = func(action string) {
		if action == "ReceiveMessage" {
			receiving <- struct{}{}
		}
	}
	b := newBroker(t, s, config)
	leaving := subscriber(t, b, brokers.SubscriberConfig{InFlight: 10})
	subscribe(t, leaving, topic)
	<-receiving
	closed := make(chan error, 1)
	go func() { closed <- leaving.Close() }()
	<-time.After(100 * time.Millisecond) // it waits for the receive
	publish(t, b, topic, newMessages(1)...)
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if n := len(receiving); n != 0 {
		t.Errorf("%d receives have begun after Close", n)
	}
	l.mu.Lock()
	if n := l.broken["ReceiveMessage"]; n != 0 {
		t.Errorf("%d receives were cancelled", n)
	}
	l.mu.Unlock()
	msg, d := receive(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic))
	if d.Count > 2 {
		t.Errorf("%+v", d)
	}
	msg.Ack()
}

// TestCloseWithoutTheService ends, though nothing can be settled.
func TestCloseWithoutTheService(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	b := newBroker(t, s, sqs.Config{Consume: sqs.Consume{Visibility: time.Minute}})
	wires := sqs.Tap(b)
	leaving := subscriber(t, b, brokers.SubscriberConfig{InFlight: 10, DrainTimeout: time.Second})
	messages := subscribe(t, leaving, topic)
	publish(t, b, topic, newMessages(3)...)
	msg, _ := receive(t, messages)
	wires.Cut(leaving)
	msg.Ack()
	started := time.Now()
	if err := leaving.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took > 25*time.Second {
		t.Errorf("Close took %s", took)
	}
	if _, open := <-messages; open {
		t.Error("a message came after Close")
	}
}
