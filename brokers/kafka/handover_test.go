package kafka_test

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
)

// heir counts the suspects among what a member gets. It ends a suspicion as the inbox does.
type heir struct {
	*tally
	mu       sync.Mutex
	suspects map[string]bool
}

func newHeir() *heir { return &heir{tally: newTally(), suspects: map[string]bool{}} }

func (h *heir) handle(d brokers.Delivery, msg *message.Message) error {
	if d.Suspect {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.suspects[d.Coordinates] = true
		brokers.SetUnfinished(msg)
	}
	return nil
}

func (h *heir) suspected(coordinates string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.suspects[coordinates]
}

// TestOrderlyEndLeavesNoSuspects: the member after one that has settled what it began
// suspects nothing, also if one that got no message was between them; the one after a member
// that died suspects all that it had.
func TestOrderlyEndLeavesNoSuspects(t *testing.T) {
	t.Parallel()
	const n, distance = 200, 10
	topic, group := newTopic(t, testenv.Kafka(t), 1), uuid.NewString()
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{CommitInterval: time.Hour, CommitDistance: distance, InFlightPerPartition: 4}})
	wires := kafka.Tap(b)
	config := brokers.SubscriberConfig{Group: group, InFlight: 4}
	run := func(wait func(h *heir)) *heir {
		h := newHeir()
		fill(t, testenv.Kafka(t), topic, 1, n)
		s := subscriber(t, b, config)
		done := h.consume(subscribe(t, s, topic), h.handle)
		wait(h)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		done.Wait()
		return h
	}
	aQuarter := func(h *heir) { h.wait(t, n/4) }
	if first := run(aQuarter); len(first.suspects) > 0 {
		t.Errorf("%d messages are suspect before a member has died", len(first.suspects))
	}
	if second := run(aQuarter); len(second.suspects) > 0 {
		t.Errorf("%d messages are suspect after an orderly end", len(second.suspects))
	}

	fill(t, testenv.Kafka(t), topic, 1, n)
	dying := subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 4, DrainTimeout: time.Millisecond})
	messages := subscribe(t, dying, topic)
	_, begun := receive(t, messages)
	if begun.Suspect {
		t.Error("a message is suspect after two orderly ends")
	}
	wires.Cut(dying)
	last := run(func(h *heir) { h.waitFor(t, begun.Coordinates) })
	if !last.suspected(begun.Coordinates) {
		t.Error("a message that was with a member that died is not suspect")
	}
}

// TestPartitionsThatMoveInOrderHaveNoSuspects: a member that joins gets its share from one
// that goes on.
func TestPartitionsThatMoveInOrderHaveNoSuspects(t *testing.T) {
	t.Parallel()
	const partitions, n, distance = 2, 50, 10
	topic, group := newTopic(t, testenv.Kafka(t), partitions), uuid.NewString()
	fill(t, testenv.Kafka(t), topic, partitions, n)
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{CommitInterval: time.Hour, CommitDistance: distance, InFlightPerPartition: 4}})
	config := brokers.SubscriberConfig{Group: group, InFlight: 8}
	first, second := newHeir(), newHeir()
	first.consume(subscribe(t, subscriber(t, b, config), topic), first.handle)
	first.wait(t, partitions*n)
	second.consume(subscribe(t, subscriber(t, b, config), topic), second.handle)
	testenv.Eventually(t, "the second member gets messages", func() bool {
		fill(t, testenv.Kafka(t), topic, partitions, 1)
		got, _ := second.count()
		return got > 0
	})
	second.mu.Lock()
	defer second.mu.Unlock()
	if len(second.suspects) > 0 {
		t.Errorf("%d messages are suspect after a partition moved in order", len(second.suspects))
	}
}
