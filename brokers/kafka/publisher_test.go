package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
)

func publisher(t testing.TB, b *kafka.Broker) message.Publisher {
	t.Helper()
	p, err := b.Publisher(brokers.PublisherConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// read reads records as a program does that knows nothing of Watermill.
func read(t testing.TB, topic string, n int) []*kgo.Record {
	t.Helper()
	c := client(t, testenv.Kafka(t), kgo.ConsumeTopics(topic))
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	var records []*kgo.Record
	for len(records) < n {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records came", len(records), n)
		}
		records = append(records, fetches.Records()...)
	}
	return records
}

func TestKeysChoosePartitions(t *testing.T) {
	t.Parallel()
	const partitions, n = 7, 60
	murmur := kgo.KafkaHasher(murmur2)
	sarama := kgo.SaramaCompatHasher(func(b []byte) uint32 {
		h := fnv.New32a()
		_, _ = h.Write(b)
		return h.Sum32()
	})
	for partitioner, hasher := range map[kafka.Partitioner]kgo.PartitionerHasher{"": murmur, kafka.PartitionerMurmur2: murmur, kafka.PartitionerSarama: sarama} {
		topic := newTopic(t, testenv.Kafka(t), partitions)
		b := newBroker(t, kafka.Config{Publish: kafka.Publish{Partitioner: partitioner, KeyMetadata: "customer"}})
		messages := []*message.Message{message.NewMessage("none", nil)}
		for i := range n {
			msg := message.NewMessage(uuid.NewString(), nil)
			msg.Metadata.Set("customer", fmt.Sprint("customer-", i))
			messages = append(messages, msg)
		}
		if err := publisher(t, b).Publish(topic, messages...); err != nil {
			t.Fatal(err)
		}
		for _, r := range read(t, topic, n+1) {
			switch {
			case r.Headers[0].Key != "_watermill_message_uuid":
				t.Errorf("the first header is %q", r.Headers[0].Key)
			case string(r.Headers[0].Value) == "none" && r.Key != nil:
				t.Errorf("a message without the field has the key %q", r.Key)
			case r.Key != nil && int(r.Partition) != hasher(r.Key, partitions):
				t.Errorf("%q: key %q went to partition %d", partitioner, r.Key, r.Partition)
			}
		}
	}
}

// A copy keeps the key of its message, whatever its metadata say, and gets none if that had none.
func TestCopyKeepsItsKey(t *testing.T) {
	t.Parallel()
	topic := newTopic(t, testenv.Kafka(t), 1)
	b := newBroker(t, kafka.Config{Publish: kafka.Publish{KeyMetadata: "customer"}})
	keys := map[string]string{"keyed": "its own", "no key": "<nil>"}
	for uuid := range keys {
		msg := message.NewMessage(uuid, nil)
		if uuid == "keyed" {
			msg.Metadata.Set("customer", "another")
			msg.SetContext(brokers.WithKey(t.Context(), msg, []byte("its own")))
		}
		if err := publisher(t, b).Publish(topic, msg); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range read(t, topic, len(keys)) {
		got, want := string(r.Key), keys[string(r.Headers[0].Value)]
		if r.Key == nil {
			got = "<nil>"
		}
		if got != want {
			t.Errorf("the key is %q, want %q", got, want)
		}
	}
}

// murmur2 is the hash of Kafka's own clients.
func murmur2(b []byte) uint32 {
	const seed, m = 0x9747b28c, 0x5bd1e995
	h := seed ^ uint32(len(b))
	for len(b) >= 4 {
		k := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		k *= m
		k ^= k >> 24
		k *= m
		h = h*m ^ k
		b = b[4:]
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}

func TestMessageOverALimit(t *testing.T) {
	t.Parallel()
	topic := "small-" + uuid.NewString()
	limit := "20000"
	createTopic(t, testenv.Kafka(t), topic, 1, map[string]*string{"max.message.bytes": &limit})
	b := newBroker(t, kafka.Config{})
	random := make([]byte, 2_000_000)
	state := uint32(1)
	for i := range random { // does not compress
		state = state*1664525 + 1013904223
		random[i] = byte(state >> 24)
	}
	p, other := publisher(t, b), newTopic(t, testenv.Kafka(t), 1)
	err := p.Publish(other, message.NewMessage("small", []byte("x")), message.NewMessage("huge", random))
	for _, says := range []string{`"huge"`, "2 of 2", "2000", "1000012", "max_message_bytes"} {
		if !errors.Is(err, kerr.MessageTooLarge) || !errors.Is(err, brokers.ErrTooLarge) || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, which does not say %q", err, says)
		}
	}
	err = p.Publish(topic, message.NewMessage("large", random[:30_000]))
	for _, says := range []string{`"large"`, "30", "20000", "max.message.bytes"} {
		if !errors.Is(err, kerr.MessageTooLarge) || !errors.Is(err, brokers.ErrTooLarge) || !strings.Contains(err.Error(), says) {
			t.Errorf("the error is %v, which does not say %q", err, says)
		}
	}
	// Each fits, together they do not.
	var many []*message.Message
	for i := range 10 {
		many = append(many, message.NewMessage(fmt.Sprint(i), random[i*10_000:(i+1)*10_000]))
	}
	if err := p.Publish(topic, many...); err != nil {
		t.Error(err)
	}
	if got := len(read(t, topic, 10)) + len(read(t, other, 1)); got != 11 {
		t.Errorf("%d records", got)
	}
}

func TestPublishWithoutBroker(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	server := testenv.PrivateKafka(t)
	topic := newTopic(t, []string{server.Address()}, 1)
	b := newBroker(t, kafka.Config{Brokers: []string{server.Address()}, Publish: kafka.Publish{Timeout: time.Second}})
	p := publisher(t, b)
	if err := p.Publish(topic, message.NewMessage("a", nil)); err != nil {
		t.Fatal(err)
	}
	s := subscriber(t, b, brokers.SubscriberConfig{Group: "group"})
	msg, _ := receive(t, subscribe(t, s, topic))
	msg.Ack()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	err := p.Publish(topic, message.NewMessage("b", nil))
	if !errors.Is(err, brokers.ErrUnavailable) {
		t.Errorf("Publish returned %v", err)
	}
	if took := time.Since(started); took > 15*time.Second {
		t.Errorf("Publish gave up after %s", took)
	}
	started = time.Now()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(started); took > 12*time.Second {
		t.Errorf("Close took %s without a broker", took)
	}
	if err := p.Publish(topic, message.NewMessage("c", nil)); !errors.Is(err, brokers.ErrClosed) {
		t.Errorf("Publish after Close returned %v", err)
	}
}
