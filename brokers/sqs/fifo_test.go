package sqs_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
)

func fifoMessages(groups string, n int) (messages []*message.Message) {
	for i := range n {
		for _, group := range groups {
			msg := message.NewMessage(newID(), fmt.Appendf(nil, "%c%d", group, i))
			msg.Metadata.Set("MessageGroupId", string(group))
			messages = append(messages, msg)
		}
	}
	return messages
}

// TestGroupsKeepTheirOrder with many in flight, several subscribers, and handlers that
// fail now and then: of each group one message at a time, and none before the one before
// it was acked. moto gets one receive at a time, and no failures: its requests are no
// single steps, so that two receives share a group, and one that falls into the middle of
// giving back begins with a later message.
func TestGroupsKeepTheirOrder(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		const groups, n = "abc", 12
		subscribers, inFlight, fails := 2, 16, true
		if strings.HasSuffix(t.Name(), "/moto") {
			subscribers, inFlight, fails = 1, 10, false
		}
		topic := s.NewQueue(t, map[string]string{"FifoQueue": "true"})
		b := newBroker(t, s, sqs.Config{Consume: sqs.Consume{Visibility: 20 * time.Second, RedeliveryDelay: 10 * time.Millisecond}})
		publish(t, b, topic, fifoMessages(groups, n)...)
		var (
			mu      sync.Mutex
			next    = map[byte]int{}
			running = map[byte]bool{}
			tried   = map[string]bool{}
			done    = make(chan struct{})
		)
		for range subscribers {
			messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: inFlight}), topic)
			go func() {
				for msg := range messages {
					go func() {
						group, payload := msg.Payload[0], string(msg.Payload)
						mu.Lock()
						defer mu.Unlock()
						if running[group] {
							t.Errorf("%s came while another of its group was in flight", payload)
						}
						if want := fmt.Sprintf("%c%d", group, next[group]); payload != want {
							t.Errorf("%s came instead of %s", payload, want)
						}
						running[group] = true
						mu.Unlock()
						<-time.After(time.Millisecond)
						mu.Lock()
						running[group] = false
						if fails && next[group]%5 == 2 && !tried[payload] {
							tried[payload] = true
							msg.Nack()
							return
						}
						msg.Ack()
						if next[group]++; next['a']+next['b']+next['c'] == len(groups)*n {
							close(done)
						}
					}()
				}
			}()
		}
		select {
		case <-done:
		case <-time.After(within):
			t.Errorf("%v are done", next)
		}
	})
}

// TestAFailingMessageHoldsItsGroupOnly for as long as its delay says, and what was
// received behind it is not begun.
func TestAFailingMessageHoldsItsGroupOnly(t *testing.T) {
	byTurns(t, func(t *testing.T, s *server) {
		topic := s.NewQueue(t, map[string]string{"FifoQueue": "true"})
		b := newBroker(t, s, sqs.Config{})
		publish(t, b, topic, fifoMessages("a", 3)...)
		messages := subscribe(t, subscriber(t, b, brokers.SubscriberConfig{InFlight: 10}), topic)
		msg, d := receive(t, messages)
		if string(msg.Payload) != "a0" || string(d.Key) != "a" || d.NativeID != msg.UUID || d.Count != 1 {
			t.Errorf("%s: %+v", msg.Payload, d)
		}
		nothing(t, messages, 300*time.Millisecond) // a1 waits for a0
		// A long one, or a slow server could be taken for one that waits.
		const delay = 8 * time.Second
		brokers.SetGiveBack(msg, brokers.GiveBack{After: delay, Failed: true})
		nacked := time.Now()
		msg.Nack()
		publish(t, b, topic, fifoMessages("b", 1)...)
		if msg, _ := receive(t, messages); string(msg.Payload) != "b0" || time.Since(nacked) >= delay {
			t.Errorf("%s came %s after the nack", msg.Payload, time.Since(nacked))
		} else {
			msg.Ack()
		}
		for i, count := range []int{2, 2, 2} { // what was given back unbegun has been received
			msg, d := receive(t, messages)
			if want := fmt.Sprint("a", i); string(msg.Payload) != want || time.Since(nacked) < delay || d.Count > count {
				t.Errorf("%s came instead of %s, %s after the nack, with count %d", msg.Payload, want, time.Since(nacked), d.Count)
			}
			msg.Ack()
		}
	})
}
