package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

var protocols = map[string]kafka.Protocol{"classic": kafka.ProtocolClassic, "consumer": kafka.ProtocolConsumer}

// trickle publishes to all partitions until the test ends.
func trickle(t *testing.T, topic string, partitions int32) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := client(t, testenv.Kafka(t), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			for p := range partitions {
				c.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: p, Value: []byte("x")}, nil)
			}
			<-time.After(20 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return func() {
		cancel()
		running.Wait()
		if err := c.Flush(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func partitionOf(d brokers.Delivery) string { return strings.Split(d.Coordinates, "/")[1] }

// gaps measures the longest time in which a partition stood still.
type gaps struct {
	mu      sync.Mutex
	last    map[string]time.Time
	longest map[string]time.Duration
	owners  map[string]string
}

func newGaps() *gaps {
	return &gaps{last: map[string]time.Time{}, longest: map[string]time.Duration{}, owners: map[string]string{}}
}

func (g *gaps) saw(partition, owner string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, ok := g.last[partition]; ok {
		g.longest[partition] = max(g.longest[partition], time.Since(last))
	}
	g.last[partition], g.owners[partition] = time.Now(), owner
}

func (g *gaps) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.longest)
}

// TestMemberJoinsWhileAHandlerRuns: the partitions that stay go on, the one that moves
// is consumed again soon after the drain budget, and nothing runs twice at once unless
// its handler outlives the budget.
func TestMemberJoinsWhileAHandlerRuns(t *testing.T) {
	t.Parallel()
	for name, protocol := range rotation.Some(t, 1, protocols) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var late []string
			for range 3 { // a busy machine may stand still by itself
				if late = joinWhileAHandlerRuns(t, protocol); len(late) == 0 {
					return
				}
			}
			t.Error(strings.Join(late, "\n"))
		})
	}
}

// joinWhileAHandlerRuns returns which partitions stood still for too long.
func joinWhileAHandlerRuns(t *testing.T, protocol kafka.Protocol) (late []string) {
	t.Helper()
	const drain, slow = 2 * time.Second, 4 * time.Second
	topic, group := newTopic(t, testenv.Kafka(t), 4), uuid.NewString()
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{Protocol: protocol, RebalanceDrain: drain}})
	stop := trickle(t, topic, 4)
	l, g := newTally(), newGaps()
	held := make(chan struct{})
	var once sync.Once
	handler := func(owner string) func(brokers.Delivery, *message.Message) error {
		return func(d brokers.Delivery, _ *message.Message) error {
			g.saw(partitionOf(d), owner)
			first := false
			if owner == "first" && partitionOf(d) == "0" {
				once.Do(func() { first = true })
			}
			if first {
				close(held)
				<-time.After(slow)
			}
			return nil
		}
	}
	config := brokers.SubscriberConfig{Group: group, InFlight: 8}
	first := subscriber(t, b, config)
	firstDone := l.consume(subscribe(t, first, topic), handler("first"))
	<-held
	g.forget()
	second := subscriber(t, b, config)
	secondDone := l.consume(subscribe(t, second, topic), handler("second"))
	testenv.Eventually(t, "both members have partitions", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		owners := map[string]int{}
		for _, owner := range g.owners {
			owners[owner]++
		}
		return owners["first"] == 2 && owners["second"] == 2
	})
	<-time.After(slow)
	stop()
	_, _ = first.Close(), second.Close()
	firstDone.Wait()
	secondDone.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	allowed := drain + 2*time.Second
	if protocol == kafka.ProtocolConsumer {
		allowed = drain + 6*time.Second
	}
	for partition, longest := range g.longest {
		t.Logf("partition %s, now of the %s member, stood still for %s", partition, g.owners[partition], longest)
		switch {
		case partition == "0" && g.owners[partition] == "first":
			continue // its own handler held it
		case g.owners[partition] == "first" && longest > time.Second:
			late = append(late, fmt.Sprintf("partition %s stayed and stood still for %s", partition, longest))
		case longest > allowed:
			late = append(late, fmt.Sprintf("partition %s moved and stood still for %s, allowed are %s", partition, longest, allowed))
		}
	}
	for _, coordinates := range l.overlap {
		if partition := strings.Split(coordinates, "/")[1]; partition != "0" {
			t.Errorf("%s ran twice at once", coordinates)
		}
	}
	messages, deliveries := l.count()
	if deliveries > messages+1 { // the slow one, if it moved
		t.Errorf("%d deliveries of %d messages", deliveries, messages)
	}
	return late
}

// TestSlowHandlerWithinBudget: what ends within the budget is committed before its
// partition moves, and never runs again.
func TestSlowHandlerWithinBudget(t *testing.T) {
	t.Parallel()
	for name, protocol := range rotation.Some(t, 1, protocols) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 200
			topic, group := newTopic(t, testenv.Kafka(t), 2), uuid.NewString()
			fill(t, testenv.Kafka(t), topic, 2, n)
			b := newBroker(t, kafka.Config{Consume: kafka.Consume{Protocol: protocol, InFlightPerPartition: 8}})
			l := newTally()
			handle := func(_ brokers.Delivery, msg *message.Message) error {
				<-time.After(100 * time.Millisecond)
				return nil
			}
			config := brokers.SubscriberConfig{Group: group, InFlight: 16}
			var done []*sync.WaitGroup
			var members []*kafka.Subscriber
			for range 3 { // one more than there are partitions
				s := subscriber(t, b, config)
				members = append(members, s)
				done = append(done, l.consume(subscribe(t, s, topic), handle))
				before, _ := l.count()
				l.wait(t, min(before+40, 2*n))
			}
			_ = members[0].Close()
			l.wait(t, 2*n)
			for i, s := range members {
				_ = s.Close()
				done[i].Wait()
			}
			if messages, deliveries := l.count(); deliveries != messages {
				t.Errorf("%d deliveries of %d messages", deliveries, messages)
			}
		})
	}
}

// TestHandlerOutlivesTheBudget: its partition moves all the same, the message comes to
// the new owner, flagged, and the late ack counts for nothing.
func TestHandlerOutlivesTheBudget(t *testing.T) {
	t.Parallel()
	const drain = time.Second
	for name, protocol := range rotation.Some(t, 1, protocols) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic, group := newTopic(t, testenv.Kafka(t), 2), uuid.NewString()
			fill(t, testenv.Kafka(t), topic, 2, 2)
			b := newBroker(t, kafka.Config{Consume: kafka.Consume{Protocol: protocol, RebalanceDrain: drain, InFlightPerPartition: 1}})
			config := brokers.SubscriberConfig{Group: group, InFlight: 2, DrainTimeout: 100 * time.Millisecond}
			first := subscriber(t, b, config)
			messages := subscribe(t, first, topic)
			held := map[string]*message.Message{}
			for range 2 {
				msg, d := receive(t, messages)
				held[d.Coordinates] = msg
			}
			second := subscriber(t, b, config)
			started := time.Now()
			moved := subscribe(t, second, topic)
			msg, d := receive(t, moved)
			took := time.Since(started)
			t.Logf("the partition moved after %s", took)
			late := held[d.Coordinates]
			switch {
			case late == nil:
				t.Fatalf("%s came to the new owner before the first message of its partition", d.Coordinates)
			case !d.Suspect:
				t.Error("it is not flagged Suspect")
			case took < drain:
				t.Errorf("the partition moved after %s, its handler had %s", took, drain)
			case took > drain+15*time.Second: // a handler that is never ended would be waited for longer
				t.Errorf("the partition moved after %s", took)
			}
			select {
			case <-late.Context().Done():
			case <-time.After(within):
				t.Error("the context of the late handler goes on")
			}
			late.Ack()
			msg.Nack()
			if again, redelivery := receive(t, moved); redelivery.Coordinates != d.Coordinates {
				t.Errorf("%s came instead of %s: the late ack of the former owner counted", redelivery.Coordinates, d.Coordinates)
			} else {
				again.Ack()
			}
		})
	}
}

var errPoison = errors.New("poison")

// TestPoisonDoesNotWedge: a message that always fails keeps its partition, and nothing
// else, and neither a rebalance nor Close wait for it.
func TestPoisonDoesNotWedge(t *testing.T) {
	t.Parallel()
	for name, protocol := range rotation.Some(t, 1, protocols) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 50
			topic, group := newTopic(t, testenv.Kafka(t), 2), uuid.NewString()
			fill(t, testenv.Kafka(t), topic, 2, n)
			b := newBroker(t, kafka.Config{Consume: kafka.Consume{Protocol: protocol}})
			l := newTally()
			handle := func(d brokers.Delivery, msg *message.Message) error {
				if d.Coordinates == topic+"/0/0" {
					brokers.SetGiveBack(msg, brokers.GiveBack{After: 20 * time.Millisecond})
					return errPoison
				}
				return nil
			}
			config := brokers.SubscriberConfig{Group: group, InFlight: 2}
			first := subscriber(t, b, config)
			firstDone := l.consume(subscribe(t, first, topic), handle)
			l.wait(t, n+1) // all of the other partition
			second := subscriber(t, b, config)
			secondDone := l.consume(subscribe(t, second, topic), handle)
			started := time.Now()
			fill(t, testenv.Kafka(t), topic, 2, n)
			l.wait(t, 2*n+1)
			_ = first.Close()
			firstDone.Wait()
			fill(t, testenv.Kafka(t), topic, 2, n)
			l.wait(t, 3*n+1)
			_ = second.Close()
			secondDone.Wait()
			if took := time.Since(started); took > 15*time.Second {
				t.Errorf("it took %s", took)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for offset := range 3 * n {
				if got := l.begun[fmt.Sprintf("%s/1/%d", topic, offset)]; got != 1 {
					t.Errorf("offset %d of the other partition was delivered %d times", offset, got)
				}
			}
		})
	}
}
