package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
	server "github.com/millpond-go/millpond/internal/testenv/kafka"
)

const partitions = 6

// cluster is a broker of the test's own, with the topic.
type cluster struct {
	*server.Server

	admin *kadm.Client
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	s := testenv.PrivateKafka(t, testenv.WithKafkaSettings(map[string]string{
		// With ProtocolConsumer the broker decides.
		"group.consumer.session.timeout.ms":        fmt.Sprint(sessionTimeout.Milliseconds()),
		"group.consumer.min.session.timeout.ms":    "1000",
		"group.consumer.heartbeat.interval.ms":     "500",
		"group.consumer.min.heartbeat.interval.ms": "100",
	}))
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Address()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c := &cluster{s, kadm.NewClient(client)}
	if _, err := c.admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return c
}

// outages kills the broker n times, at random moments of a run that takes this long, and
// lets it come back.
func (c *cluster) outages(ctx context.Context, seed uint64, n int, during time.Duration, happened func(string)) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	slot := during / time.Duration(n+1)
	for range n {
		if !pause(ctx, slot/2+time.Duration(rng.Int64N(int64(slot/2)))) {
			return nil
		}
		happened("the broker is killed")
		if err := c.Kill(); err != nil {
			return err
		}
		pause(ctx, time.Duration(rng.Int64N(int64(2*time.Second))))
		if err := c.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		happened("the broker is back")
	}
	return nil
}

// pause reports whether ctx has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// lag is how many messages are not committed. With an error it is not known.
func (c *cluster) lag(ctx context.Context) (lag int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return 0, err
	}
	committed, err := c.admin.FetchOffsets(ctx, group)
	if err != nil {
		return 0, err
	}
	found := 0
	ends.Each(func(end kadm.ListedOffset) {
		at := int64(0)
		if o, ok := committed.Lookup(topic, end.Partition); ok {
			at = o.At
		}
		if end.Err == nil {
			found++
			lag += end.Offset - at
		}
	})
	if found != partitions {
		return 0, fmt.Errorf("%d of %d partitions have told their ends", found, partitions)
	}
	return lag, nil
}

// describe says who is in the group, and who has what.
func (c *cluster) describe(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	text := ""
	if groups, err := c.admin.DescribeConsumerGroups(ctx, group); err == nil {
		text += fmt.Sprintf("%+v\n", groups[group])
	}
	if groups, err := c.admin.DescribeGroups(ctx, group); err == nil {
		text += fmt.Sprintf("%+v\n", groups[group])
	}
	committed, err := c.admin.FetchOffsets(ctx, group)
	return text + fmt.Sprintf("%+v, %v", committed, err)
}

// ledger is what was published, kept outside of the system.
type ledger struct {
	rng *rand.Rand

	mu        sync.Mutex
	published map[string]int // how often, by id
	recent    []string
	events    []event
}

func newLedger(seed uint64) *ledger {
	return &ledger{rng: rand.New(rand.NewPCG(seed, 1)), published: make(map[string]int)}
}

// happened writes down what was done to somebody.
func (l *ledger) happened(what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event{At: time.Now(), What: "parent: " + what})
}

// next returns an order, or one of the last ones once more.
func (l *ledger) next() *message.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	var id string
	if len(l.recent) > 0 && l.rng.IntN(4) == 0 {
		id = l.recent[l.rng.IntN(len(l.recent))]
	} else {
		id = fmt.Sprintf("%05d-%s", len(l.published), l.draw())
		if l.recent = append(l.recent, id); len(l.recent) > 100 {
			l.recent = l.recent[1:]
		}
	}
	l.published[id]++
	msg := message.NewMessage(id, []byte("order "+id))
	if l.rng.IntN(2) == 0 { // else its duplicate may come by another partition
		msg.Metadata.Set("item", fmt.Sprint(item(id)))
	}
	return msg
}

func (l *ledger) draw() conduct {
	p := l.rng.IntN(100)
	for c, share := range shares {
		if p -= share.percent; p < 0 {
			return shares[c].conduct
		}
	}
	return honest
}

// shares says how many orders in a hundred have which conduct; the rest is honest.
var shares = []struct {
	conduct conduct
	percent int
}{{slow, 25}, {flaky, 6}, {panics, 3}, {stalls, 3}, {hopeless, 2}}

func (l *ledger) count() (ids, messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range l.published {
		messages += n
	}
	return len(l.published), messages
}

// publish publishes at least n messages and goes on until enough says so or ctx ends.
// Whatever fails is published again.
func (l *ledger) publish(ctx context.Context, address string, n int, enough func() bool) error {
	broker, err := kafka.New(ctx, kafka.Config{Brokers: []string{address}, Publish: kafka.Publish{KeyMetadata: "item"}})
	if err != nil {
		return err
	}
	defer broker.Close()
	publisher, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return err
	}
	for published := 0; published < n || !enough(); {
		var batch []*message.Message
		for range 1 + l.rng.IntN(4) {
			batch = append(batch, l.next())
		}
		published += len(batch)
		for err = publisher.Publish(topic, batch...); err != nil; err = publisher.Publish(topic, batch...) {
			l.happened("publishing has failed: " + err.Error())
			if !pause(ctx, 50*time.Millisecond) {
				return err
			}
		}
		if !pause(ctx, 40*time.Millisecond) {
			return nil
		}
	}
	return nil
}
