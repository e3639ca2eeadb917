package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka"
	"github.com/millpond-go/millpond/internal/testenv"
	kafkaserver "github.com/millpond-go/millpond/internal/testenv/kafka"
)

const (
	partitions     = 6
	sessionTimeout = 2 * time.Second
)

// The points of a Kafka client.
const (
	pointJoining     = "joining"      // the group was asked for partitions
	pointAssigned    = "assigned"     // partitions have come, and where to begin is asked
	pointOffsetsSent = "offsets sent" // and it is not known whether they are committed
)

func init() {
	kinds["kafka"] = &kind{
		start:   newCluster,
		open:    openKafka,
		absence: sessionTimeout,
		vary: func(seed uint64, _ bool, s *setup) {
			s.Protocol = kafka.ProtocolClassic
			if seed/2%4 == 3 {
				s.Protocol = kafka.ProtocolConsumer
			}
		},
		places: func(s setup) []place {
			all := []place{{pointAssigned, 6}, {pointOffsetsSent, 40}}
			if s.Protocol != kafka.ProtocolConsumer { // which has no such request
				all = append(all, place{pointJoining, 8})
			}
			return all
		},
	}
}

func openKafka(ctx context.Context, s setup, r *recorder) (brokers.Broker, error) {
	var options []kgo.Opt
	if r != nil {
		options = append(options, kgo.WithHooks(kafkaPoints{r}))
	}
	return kafka.New(ctx, kafka.Config{
		Brokers: []string{s.Broker},
		Options: options,
		Consume: kafka.Consume{
			InFlightPerPartition: s.InFlight,
			Protocol:             s.Protocol,
			SessionTimeout:       sessionTimeout,
			RebalanceDrain:       5 * time.Second,
			ProducerTime:         true,
			CommitInterval:       max(s.Commit, 200*time.Millisecond),
			Unmarshal:            func(r *kgo.Record) (*message.Message, error) { return s.read(kafka.ReadRecord(r)) },
		},
	})
}

type kafkaPoints struct{ *recorder }

var _ kgo.HookBrokerWrite = kafkaPoints{}

// OnBrokerWrite is called by the Kafka client after each request that it has sent.
func (p kafkaPoints) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	point, ok := map[int16]string{
		int16(kmsg.JoinGroup):    pointJoining,
		int16(kmsg.OffsetFetch):  pointAssigned,
		int16(kmsg.OffsetCommit): pointOffsetsSent,
	}[key]
	if ok && err == nil {
		p.at(context.Background(), point)
	}
}

// cluster is one Kafka broker with the topic.
type cluster struct {
	*kafkaserver.Server

	admin    *kadm.Client
	protocol kafka.Protocol
}

func newCluster(t *testing.T, s setup) server {
	t.Helper()
	started := testenv.PrivateKafka(t, testenv.WithKafkaSettings(map[string]string{
		// With ProtocolConsumer the broker decides.
		"group.consumer.session.timeout.ms":        fmt.Sprint(sessionTimeout.Milliseconds()),
		"group.consumer.min.session.timeout.ms":    "1000",
		"group.consumer.heartbeat.interval.ms":     "500",
		"group.consumer.min.heartbeat.interval.ms": "100",
	}))
	client, err := kgo.NewClient(kgo.SeedBrokers(started.Address()), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	c := &cluster{started, kadm.NewClient(client), s.Protocol}
	if _, err := c.admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *cluster) address() string { return c.Address() }

func (c *cluster) client(ctx context.Context) (brokers.Broker, error) {
	return kafka.New(ctx, kafka.Config{Brokers: []string{c.Address()}, Publish: kafka.Publish{KeyMetadata: "item"}})
}

// left is how many offsets are not committed.
func (c *cluster) left(ctx context.Context) (lag int64, err error) {
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

func (*cluster) dropped(context.Context) (int64, error) { return 0, nil }

func (c *cluster) connected(ctx context.Context) (int, error) {
	if c.protocol == kafka.ProtocolConsumer {
		groups, err := c.admin.DescribeConsumerGroups(ctx, group)
		return len(groups[group].Members), err
	}
	groups, err := c.admin.DescribeGroups(ctx, group)
	return len(groups[group].Members), err
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

// variant is what a run says of its settings.
func (s setup) variant() string {
	if s.Protocol == "" {
		return ""
	}
	return "protocol " + string(s.Protocol) + ", "
}
