package kafka_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/rotation"
	"github.com/millpond-go/millpond/internal/testenv"
	server "github.com/millpond-go/millpond/internal/testenv/kafka"
)

// put publishes payloads prefix0, prefix1, … one by one.
func put(t *testing.T, addresses []string, topic, prefix string, n int) {
	t.Helper()
	c := client(t, addresses)
	for i := range n {
		if err := c.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(prefix, i))}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// damage lets a partition lose what was published by a second call of publish, as a
// broker does that loses its disk's cache.
func damage(t *testing.T, s *server.Server, topic string, lose func()) {
	t.Helper()
	info, err := os.Stat(s.PartitionLog(topic, 0))
	if err != nil {
		t.Fatal(err)
	}
	lose()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(s.PartitionLog(topic, 0), info.Size()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// patientDialer waits for a broker that is away, so that the client does not leave the
// group meanwhile.
func patientDialer(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, network, address)
		if err == nil || ctx.Err() != nil {
			return conn, err
		}
		<-time.After(20 * time.Millisecond)
	}
}

func committed(t *testing.T, addresses []string, group, topic string) int64 {
	t.Helper()
	offsets, err := kadm.NewClient(client(t, addresses)).FetchOffsets(context.Background(), group)
	if err != nil {
		return -1
	}
	at, ok := offsets.Lookup(topic, 0)
	if !ok {
		return -1
	}
	return at.At
}

// TestLogIsCut: a broker loses the end of a partition's log and gives the same offsets to
// other messages.
func TestLogIsCut(t *testing.T) {
	t.Parallel()
	if !rotation.Every(t, 2) {
		return
	}
	s := testenv.PrivateKafka(t)
	t.Run("in a session", func(t *testing.T) { cutInASession(t, s) })
	t.Run("between sessions", func(t *testing.T) { cutBetweenSessions(t, s) })
}

// cutInASession: the session that has had the old messages goes on with the new ones, and
// commits no offset that would pass one over.
func cutInASession(t *testing.T, s *server.Server) {
	addresses := []string{s.Address()}
	topic, group := newTopic(t, addresses, 1), uuid.NewString()
	put(t, addresses, topic, "kept", 10)
	b := newBroker(t, kafka.Config{
		Brokers: addresses, ConnectTimeout: time.Minute, Options: []kgo.Opt{kgo.Dialer(patientDialer)},
		Consume: kafka.Consume{SessionTimeout: time.Minute, InFlightPerPartition: 2, CommitInterval: 100 * time.Millisecond},
	})
	sub := subscriber(t, b, brokers.SubscriberConfig{Group: group, InFlight: 2, DrainTimeout: 100 * time.Millisecond})
	messages := subscribe(t, sub, topic)
	var late *message.Message
	damage(t, s, topic, func() {
		put(t, addresses, topic, "lost", 10)
		for range 20 {
			msg, d := receive(t, messages)
			if d.Coordinates == topic+"/0/19" {
				late = msg
				continue
			}
			msg.Ack()
		}
		testenv.Eventually(t, "what is settled is committed", func() bool { return committed(t, addresses, group, topic) == 19 })
	})
	const n = 30
	put(t, addresses, topic, "new", n)
	unsettled, d := receive(t, messages)
	late.Ack() // it must not be taken for the ack of the message that has its offset now
	seen := map[string]string{d.Coordinates: string(unsettled.Payload)}
	for len(seen) < n {
		msg, d := receive(t, messages)
		seen[d.Coordinates] = string(msg.Payload)
		msg.Ack()
	}
	for i := range n {
		if at := fmt.Sprintf("%s/0/%d", topic, 10+i); seen[at] != fmt.Sprint("new", i) {
			t.Errorf("%s was %q", at, seen[at])
		}
	}
	_ = sub.Close()
	if at := committed(t, addresses, group, topic); at != 10 {
		t.Errorf("%d is committed, and the message with offset 10 is not settled", at)
	}
}

// cutBetweenSessions: what is settled ahead of a message that is not, is not passed over
// when its offset has become another message's.
func cutBetweenSessions(t *testing.T, s *server.Server) {
	const n, gap = 10, 5
	addresses := []string{s.Address()}
	topic, group := newTopic(t, addresses, 1), uuid.NewString()
	put(t, addresses, topic, "kept", n)
	config := kafka.Config{Brokers: addresses, Consume: kafka.Consume{InFlightPerPartition: 2}}
	subscription := brokers.SubscriberConfig{Group: group, InFlight: 2, DrainTimeout: 100 * time.Millisecond}
	damage(t, s, topic, func() {
		put(t, addresses, topic, "lost", n)
		b := newBroker(t, config)
		sub := subscriber(t, b, subscription)
		messages := subscribe(t, sub, topic)
		for range 2 * n {
			if msg, d := receive(t, messages); d.Coordinates != fmt.Sprint(topic, "/0/", gap) {
				msg.Ack()
			}
		}
		_ = b.Close()
		if at := committed(t, addresses, group, topic); at != gap {
			t.Errorf("%d is committed", at)
		}
	})
	put(t, addresses, topic, "new", n)
	messages := subscribe(t, subscriber(t, newBroker(t, config), subscription), topic)
	want := map[string]bool{fmt.Sprint("kept", gap): true}
	for i := range n {
		want[fmt.Sprint("new", i)] = true
	}
	for len(want) > 0 {
		msg, d := receive(t, messages)
		if got := string(msg.Payload); !want[got] {
			t.Errorf("%s came again: %q", d.Coordinates, got)
		}
		delete(want, string(msg.Payload))
		msg.Ack()
	}
}
