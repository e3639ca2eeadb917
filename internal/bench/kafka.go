package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/millpond-go/millpond/internal/testenv/kafka"
)

// Names of recipes.
const (
	officialNoOp    = "watermill-kafka, no-op"
	kafkaNoOp       = "millpond, no-op"
	officialBusy    = "watermill-kafka, 2 ms"
	kafkaBusy       = "millpond, 2 ms"
	kafkaWide       = "millpond, 2 ms, 32 in flight"
	officialPublish = "watermill-kafka, publish"
	kafkaPublish    = "millpond, publish"
)

const (
	partitionCount = 8
	wideInFlight   = 32 // for each partition
	busyTime       = 2 * time.Millisecond
	kafkaLonger    = 5 // cells than others: fetching begins in steps
	kafkaLeast     = 4 * publishBatch
)

func kafkaRecipes(c *cluster) []recipe {
	return []recipe{
		{name: officialNoOp, routed: true, job: c.consume(officialNoOp, 0, c.officialSubscriber)},
		{name: kafkaNoOp, against: officialNoOp, routed: true, job: c.consume(kafkaNoOp, 0, c.subscriber(1))},
		{name: officialBusy, routed: true, job: c.consume(officialBusy, busyTime, c.officialSubscriber)},
		{name: kafkaBusy, against: officialBusy, routed: true, job: c.consume(kafkaBusy, busyTime, c.subscriber(1))},
		{name: kafkaWide, against: officialBusy, routed: true, job: c.consume(kafkaWide, busyTime, c.subscriber(wideInFlight))},
		{name: officialPublish, job: c.publish(c.officialPublisher)},
		{name: kafkaPublish, against: officialPublish, job: c.publish(c.publisher)},
	}
}

// measureKafka measures the adapters on a broker.
func (r *report) measureKafka(ctx context.Context, o options) (err error) {
	o.progress.Print("Starting a Kafka broker")
	c, err := startCluster(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	r.Machine.Kafka = kafka.Version
	return r.add(ctx, o, &group{
		name:  "kafka",
		title: "Kafka: millpond's adapter and watermill-kafka",
		about: fmt.Sprintf("A plain Watermill router without an inbox on either adapter, messages of 1 KiB, no compression of what is consumed. "+
			"The workers are the partitions of the topic: there is one subscriber, or one publisher, with its defaults, but that watermill-kafka is told to begin with the oldest message. "+
			"Where nothing else is said one message of a partition is in flight, which is all that watermill-kafka can do, "+
			"so that millpond with %d in flight, in no order, is compared with that.\n\n"+
			"Topics are filled before, and each cell is a group of its own. The clock runs from the first delivery to the end of the last handler; client CPU includes joining the group. "+
			"A message that is lost, or comes twice, or any error that is logged, ends the bench. "+
			"Publishing is one caller of Publish with %d messages each time, and what the topic has in the end is counted; "+
			"by default millpond compresses and waits for all replicas in sync, watermill-kafka does neither. "+
			"Cells take %d times as long as others.", wideInFlight, publishBatch, kafkaLonger),
		workers: []int{partitionCount}, recipes: kafkaRecipes(c),
		longer: kafkaLonger, least: kafkaLeast, close: func() {},
	})
}

// cluster is a Kafka broker with the topics of the recipes.
type cluster struct {
	server *kafka.Server
	client *kgo.Client
	admin  *kadm.Client
	filled map[string]filledTopic // by recipe
}

// filledTopic has messages that nobody takes away.
type filledTopic struct {
	name  string
	count int
}

func startCluster(ctx context.Context) (*cluster, error) {
	server, err := kafka.Start(ctx, kafka.Config{})
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(server.Address()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &cluster{server: server, client: client, admin: kadm.NewClient(client), filled: make(map[string]filledTopic)}, nil
}

func (c *cluster) close() error {
	c.client.Close()
	return c.server.Close()
}

// newTopic makes an empty topic.
func (c *cluster) newTopic(ctx context.Context) (string, error) {
	name := topicName + "-" + uuid.NewString()
	if _, err := c.admin.CreateTopic(ctx, partitionCount, 1, nil, name); err != nil {
		return "", fmt.Errorf("create a topic: %w", err)
	}
	return name, nil
}

func (c *cluster) deleteTopic(ctx context.Context, name string) error {
	if _, err := c.admin.DeleteTopic(ctx, name); err != nil {
		return fmt.Errorf("delete a topic: %w", err)
	}
	return nil
}

// fill returns a topic of the recipe's own with n messages, as many in each partition.
// Their ids are their numbers.
func (c *cluster) fill(ctx context.Context, recipe string, n int) (string, error) {
	topic := c.filled[recipe]
	if topic.count == n {
		return topic.name, nil
	}
	if topic.name != "" {
		delete(c.filled, recipe)
		if err := c.deleteTopic(ctx, topic.name); err != nil {
			return "", err
		}
	}
	name, err := c.newTopic(ctx)
	if err != nil {
		return "", err
	}
	value := kilobyte()
	records := make([]*kgo.Record, n)
	for i := range records {
		id := kgo.RecordHeader{Key: wmkafka.UUIDHeaderKey, Value: []byte(strconv.Itoa(i))}
		records[i] = &kgo.Record{Topic: name, Partition: int32(i % partitionCount), Value: value, Headers: []kgo.RecordHeader{id}}
	}
	if err := c.client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return "", fmt.Errorf("fill a topic: %w", err)
	}
	c.filled[recipe] = filledTopic{name, n}
	return name, nil
}

// holds is an error if the topic does not have so many messages.
func (c *cluster) holds(ctx context.Context, topic string, want int) error {
	ends, err := c.admin.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return fmt.Errorf("count the messages of a topic: %w", err)
	}
	var got int64
	ends.Each(func(end kadm.ListedOffset) { got += end.Offset })
	if got != int64(want) {
		return fmt.Errorf("%d messages are in the topic, want %d", got, want)
	}
	return nil
}
