package sqs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
)

// TestAGroupDoesNotWaitForALongPoll: moto does not answer a receive that has begun to wait
// when a delete lets the next message of a group go. The pace must not be that of the waits.
func TestAGroupDoesNotWaitForALongPoll(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		const n, wait = 8, 5 * time.Second
		topic := s.NewQueue(t, map[string]string{"FifoQueue": "true"})
		b := newBroker(t, s, sqs.Config{Consume: sqs.Consume{Wait: wait}})
		publish(t, b, topic, fifoMessages("a", n)...)
		messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{}), topic)
		started := time.Now()
		for i := range n {
			msg, _ := receive(t, messages)
			if want := fmt.Sprint("a", i); string(msg.Payload) != want {
				t.Errorf("%s came instead of %s", msg.Payload, want)
			}
			msg.Ack()
		}
		if took := time.Since(started); took > (n-1)*wait/2 {
			t.Errorf("%d messages took %s", n, took)
		}
	})
}
