package memory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/memory"
)

// TestNothingIsLostOrDoubled lets consumers nack, die, close and be cancelled at
// random in a small topic, and counts the acks that the broker has heard.
func TestNothingIsLostOrDoubled(t *testing.T) {
	const (
		publishers = 4
		perEach    = 300
		groups     = 2
		consumers  = 3 // of each group
	)
	broker := newBroker(t, memory.Config{Capacity: 50, RedeliveryDelay: -1})
	for group := range groups { // or one may be so late that it misses what others have settled
		s := newSubscriber(t, broker, brokers.SubscriberConfig{Group: fmt.Sprint(group)})
		if err := s.SubscribeInitialize("topic"); err != nil {
			t.Fatal(err)
		}
	}
	var publishing, consuming sync.WaitGroup
	for p := range publishers {
		publisher := newPublisher(t, broker)
		publishing.Go(func() {
			for i := range perEach {
				if err := publisher.Publish("topic", message.NewMessage(fmt.Sprintf("%d-%d", p, i), nil)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}

	var mu sync.Mutex
	acked := make([]map[string]int, groups)
	left := groups * publishers * perEach
	done := make(chan struct{})
	ack := func(group int, msg *message.Message) {
		mu.Lock()
		defer mu.Unlock()
		msg.Ack()
		acked[group][msg.UUID]++
		if left--; left == 0 {
			close(done)
		}
	}
	for group := range groups {
		acked[group] = make(map[string]int)
		for c := range consumers {
			random := rand.New(rand.NewPCG(uint64(group), uint64(c)))
			consuming.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						consumeForAWhile(t, broker, random, group, ack)
					}
				}
			})
		}
	}
	select {
	case <-done:
	case <-time.After(6 * within):
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d of %d acks are missing", left, groups*publishers*perEach)
	}
	publishing.Wait()
	consuming.Wait()
	for group := range groups {
		if n := len(acked[group]); n != publishers*perEach {
			t.Errorf("group %d has acked %d messages, want %d", group, n, publishers*perEach)
		}
		for id, times := range acked[group] {
			if times != 1 {
				t.Errorf("group %d has acked message %s %d times", group, id, times)
			}
		}
	}
}

// consumeForAWhile opens a consumer and ends it in one of three ways.
func consumeForAWhile(t *testing.T, broker *memory.Broker, random *rand.Rand, group int, ack func(int, *message.Message)) {
	s, err := broker.Subscriber(brokers.SubscriberConfig{
		Group: fmt.Sprint(group), InFlight: 1 + random.IntN(4), DrainTimeout: within,
	})
	if err != nil {
		t.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	messages, err := s.Subscribe(ctx, "topic")
	if err != nil {
		t.Error(err)
		return
	}
	var open []*message.Message
	for range random.IntN(40) {
		select {
		case msg, ok := <-messages:
			if !ok {
				return // the test is over
			}
			switch random.IntN(6) {
			case 0:
				nackAfter(msg, time.Duration(random.IntN(int(time.Millisecond))))
			case 1:
				fail(t, msg)
			default:
				ack(group, msg)
			}
		case <-time.After(time.Millisecond):
		}
	}
	select {
	case msg, ok := <-messages:
		if ok {
			open = append(open, msg)
		}
	default:
	}
	switch random.IntN(3) {
	case 0: // dies with what it has
		s.(*memory.Subscriber).Abandon()
		return
	case 1: // ends gracefully
		go s.Close()
	case 2: // the context ends first
		cancel()
	}
	for _, msg := range open {
		ack(group, msg)
	}
	for msg := range messages { // closed when all is settled
		msg.Nack()
	}
	_ = s.Close()
}
