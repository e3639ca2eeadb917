package sqs_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv"
)

// TestLongHandlersRunOnce: handlers take four times the visibility timeout, two of them at
// a time while others wait, and all of it happens once.
func TestLongHandlersRunOnce(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, map[string]string{"VisibilityTimeout": "2"})
		b := newBroker(t, s, sqs.Config{})
		publish(t, b, topic, newMessages(6)...)
		var runs atomic.Int32
		done := make(chan struct{}, 100)
		for range 2 {
			messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 3}), topic)
			go func() {
				for msg := range messages {
					runs.Add(1)
					go func() {
						<-time.After(8 * time.Second)
						if msg.Context().Err() != nil {
							t.Errorf("the context of a handler has ended: %v", msg.Context().Err())
						}
						msg.Ack()
						done <- struct{}{}
					}()
				}
			}()
		}
		for range 6 {
			select {
			case <-done:
			case <-time.After(within):
				t.Fatal("the messages did not come")
			}
		}
		nothing(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic), 3*time.Second)
		if n := runs.Load(); n != 6 {
			t.Errorf("6 messages were handled %d times", n)
		}
	})
}

// TestWhatADeadConsumerHad comes back after the visibility timeout, counted from the last
// extension, and not later.
func TestWhatADeadConsumerHad(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		const visibility = 5 * time.Second
		topic := s.NewQueue(t, nil)
		b := newBroker(t, s, sqs.Config{Consume: sqs.Consume{Visibility: visibility}})
		wires := sqs.Tap(b)
		dying := subscriber(t, b, brokers.SubscriberConfig{DrainTimeout: time.Millisecond})
		messages := subscribe(t, dying, topic)
		publish(t, b, topic, newMessages(1)...)
		receive(t, messages)
		<-time.After(2 * visibility) // it is extended meanwhile
		wires.Cut(dying)
		died := time.Now()
		msg, d := receive(t, subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic))
		defer msg.Ack()
		if back := time.Since(died); back > 2*visibility || d.Count != 2 {
			t.Errorf("it came back %s after the death, with count %d", back, d.Count)
		}
	})
}

// TestTakenBack: somebody else gets a message whose handler runs. That handler's context
// says so; where the server still takes the old handle, nobody can know.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	s := testenv.SQS(t)
	topic := s.NewQueue(t, nil)
	config := sqs.Config{Consume: sqs.Consume{Visibility: 2 * time.Second}}
	l := tap(&config)
	b := newBroker(t, s, config)
	other := newBroker(t, s, sqs.Config{Consume: sqs.Consume{Visibility: time.Minute}})
	messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
	publish(t, other, topic, newMessages(1)...)
	late, _ := receive(t, messages)
	l.fail("ChangeMessageVisibilityBatch", 500, "InternalError", -1)
	msg, d := receive(t, subscribe(t, subscriber(t, other, brokers.SubscriberConfig{}), topic))
	l.heal("ChangeMessageVisibilityBatch")
	select {
	case <-late.Context().Done():
	case <-time.After(within):
		t.Fatal("the context of a message that was taken back has not ended")
	}
	late.Ack()
	if d.Count != 2 || !d.Suspect {
		t.Errorf("%+v", d)
	}
	msg.Ack()
}

func newMessages(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(newID(), []byte{'a' + byte(i%26)})
	}
	return messages
}
