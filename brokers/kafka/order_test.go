package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
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

// TestOrder lets some deliveries fail, and watches that what has to wait does: for the
// same partition, or the same key. What need not wait runs beside it.
func TestOrder(t *testing.T) {
	t.Parallel()
	const partitions, keys, n = 2, 5, 200
	for name, consume := range map[string]kafka.Consume{
		"partition": {},
		"key":       {InFlightPerPartition: 16, Order: kafka.OrderKey, CommitDistance: 50},
		"none":      {InFlightPerPartition: 16, CommitDistance: 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := newTopic(t, testenv.Kafka(t), partitions)
			var records []*kgo.Record
			for i := range n {
				for p := range int32(partitions) {
					r := &kgo.Record{Topic: topic, Partition: p, Value: []byte(strconv.Itoa(i))}
					if i%10 != 0 {
						r.Key = []byte(fmt.Sprint("key-", i%keys))
					}
					records = append(records, r)
				}
			}
			c := client(t, testenv.Kafka(t), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err := c.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			b := newBroker(t, kafka.Config{Consume: consume})
			s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: 64})
			l, done := newTally(), newTally()
			var mu sync.Mutex
			running, most := map[string]int{}, map[string]int{}
			next := map[string]int{}
			lane := func(d brokers.Delivery) (string, bool) {
				switch {
				case name == "partition":
					return partitionOf(d), true
				case name == "key" && d.Key != nil:
					return partitionOf(d) + "/" + string(d.Key), true
				}
				return "", false
			}
			all := l.consume(subscribe(t, s, topic), func(d brokers.Delivery, msg *message.Message) error {
				offset, err := strconv.Atoi(d.Coordinates[strings.LastIndexByte(d.Coordinates, '/')+1:])
				if err != nil {
					t.Error(err)
				}
				ordered, has := lane(d)
				mu.Lock()
				running[partitionOf(d)]++
				most[partitionOf(d)] = max(most[partitionOf(d)], running[partitionOf(d)])
				if has && offset < next[ordered] {
					t.Errorf("%s came after offset %d was settled", d.Coordinates, next[ordered]-1)
				}
				if has {
					if n := running["lane "+ordered]; n > 0 {
						t.Errorf("%d messages of lane %s at once", n+1, ordered)
					}
					running["lane "+ordered]++
				}
				mu.Unlock()
				<-time.After(time.Duration(rand.IntN(4)) * time.Millisecond)
				failed := rand.IntN(10) == 0
				mu.Lock()
				defer mu.Unlock()
				running[partitionOf(d)]--
				if has {
					running["lane "+ordered]--
				}
				if failed {
					return errPoison
				}
				if has {
					next[ordered] = offset + 1
				}
				done.mu.Lock()
				defer done.mu.Unlock()
				done.began(d)
				return nil
			})
			done.wait(t, partitions*n)
			_ = s.Close()
			all.Wait()
			messages, deliveries := done.count()
			t.Logf("%d messages, most in flight by partition: %v", messages, most)
			if deliveries != messages {
				t.Errorf("%d messages were acked %d times", messages, deliveries)
			}
			for _, n := range most {
				if n > 1 != (name != "partition") || n > 16 {
					t.Errorf("up to %d in flight", n)
				}
			}
		})
	}
}

// TestCommitDistance: a held message lets so many others start, and no more; after it is
// settled all goes on.
func TestCommitDistance(t *testing.T) {
	t.Parallel()
	const n, distance = 100, 10
	topic := newTopic(t, testenv.Kafka(t), 1)
	fill(t, testenv.Kafka(t), topic, 1, n)
	b := newBroker(t, kafka.Config{Consume: kafka.Consume{InFlightPerPartition: 4, CommitDistance: distance}})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: 4})
	messages := subscribe(t, s, topic)
	// Messages in flight are handed out in any order.
	var held *message.Message
	for acked := 0; held == nil || acked < distance-1; {
		msg, d := receive(t, messages)
		if d.Coordinates == topic+"/0/0" {
			held = msg
			continue
		}
		msg.Ack()
		acked++
	}
	select {
	case msg := <-messages:
		t.Fatalf("message %s came, beyond the distance", msg.Payload)
	case <-time.After(300 * time.Millisecond):
	}
	held.Ack()
	var next []*message.Message // as many at once as may be in flight
	for range 4 {
		msg, _ := receive(t, messages)
		next = append(next, msg)
	}
	for _, msg := range next {
		msg.Ack()
	}
	for range n - distance - len(next) {
		msg, _ := receive(t, messages)
		msg.Ack()
	}
}

// TestSlowPartitionKeepsNoOther: a partition that stands still, with more behind it than
// is fetched ahead, is paused; the other goes on without stalls, and later so does it.
func TestSlowPartitionKeepsNoOther(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	const n = 40_000
	topic := newTopic(t, testenv.Kafka(t), 2)
	fill(t, testenv.Kafka(t), topic, 2, n)
	b := newBroker(t, kafka.Config{})
	s := subscriber(t, b, brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: 2})
	l := newTally()
	release := make(chan struct{})
	g := newGaps()
	all := l.consume(subscribe(t, s, topic), func(d brokers.Delivery, _ *message.Message) error {
		if d.Coordinates == topic+"/0/0" {
			<-release
		}
		g.saw(partitionOf(d), "")
		return nil
	})
	started := time.Now()
	l.wait(t, n+1)
	took := time.Since(started)
	close(release)
	resumed := time.Now()
	l.wait(t, 2*n)
	alone := time.Since(resumed)
	_ = s.Close()
	all.Wait()
	t.Logf("the other partition needed %s and stood still for at most %s; the held one %s and %s", took, g.longest["1"], alone, g.longest["0"])
	// Without a pause each poll waits: eight seconds in all, however fast the machine is.
	if took > alone+6*time.Second || g.longest["1"] > 4*time.Second || g.longest["0"] > 4*time.Second {
		t.Error("it stalled")
	}
	if messages, deliveries := l.count(); deliveries != messages {
		t.Errorf("%d deliveries of %d messages", deliveries, messages)
	}
}
