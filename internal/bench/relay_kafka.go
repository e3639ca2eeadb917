package main

import (
	"context"
	"errors"
	"fmt"
)

// Names of recipes.
const (
	kafkaUnkeyed   = "relay to Kafka, no order keys"
	kafkaManyKeys  = "relay to Kafka, 5,000 order keys"
	kafkaSomeKeys  = "relay to Kafka, 16 order keys"
	kafkaSingleKey = "relay to Kafka, 1 order key"
)

// relaysToKafka measures what the order of a key costs where an answer takes its time.
func relaysToKafka(ctx context.Context, s *site, o options) (*group, error) {
	o.progress.Print("Starting a Kafka broker")
	c, err := startCluster(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.admin.CreateTopic(ctx, partitionCount, 1, nil, outputTopic); err != nil {
		return nil, errors.Join(err, c.close())
	}
	with := func(keys int) func(context.Context, int, int) (*job, error) {
		return relaying{db: s.used, clean: s.direct.emptyOutbox, keys: keys, to: c.publisher}.job
	}
	return &group{
		title: "Kafka: relaying in order",
		about: fmt.Sprintf("One relay with its defaults publishes outputs of about 490 bytes from PostgreSQL to a topic of %d partitions, with the defaults of millpond's publisher. "+
			"Of an order key one message is in flight at a time, and the next follows the broker's answer.", partitionCount),
		workers: []int{1}, longer: relayLonger, least: 200,
		recipes: []recipe{
			{name: kafkaUnkeyed, job: with(0)},
			{name: kafkaManyKeys, against: kafkaUnkeyed, job: with(manyKeys)},
			{name: kafkaSomeKeys, against: kafkaUnkeyed, job: with(16)},
			{name: kafkaSingleKey, against: kafkaUnkeyed, job: with(1)},
		},
		server: s.server, close: func() { _ = c.close(); s.close() },
	}, nil
}
