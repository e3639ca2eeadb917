package main

import (
	"context"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// warmUp is how many messages there are for each partition before the others: enough that each
// partition has one.
const warmUp = 32

// shards makes a database and a topic for each server.
func (b *bench) shards(ctx context.Context) (shards []shard, err error) {
	for _, s := range b.servers {
		address, err := s.newDatabase(ctx)
		if err != nil {
			return nil, err
		}
		if err := b.create(ctx, address); err != nil {
			return nil, err
		}
		topic := "scale-" + uuid.NewString()
		if _, err := kadm.NewClient(b.client).CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
			return nil, err
		}
		shards = append(shards, shard{topic, address})
	}
	return shards, nil
}

// publish waits for the processes to share the partitions, and publishes the messages, each to the
// topic of its key. What is in a partition before its first consumer comes could have been begun by
// another one that died, so its deliveries would take a suspect's longer path.
func (b *bench) publish(ctx context.Context, ps *processes, group string, shards []shard, messages int) error {
	members := max(len(ps.live), len(shards))
	err := waitUntil(ctx, reportEvery, time.Minute, func() (bool, error) {
		described, err := kadm.NewClient(b.client).DescribeGroups(ctx, group)
		g := described[group]
		return err == nil && g.Err == nil && g.State == "Stable" && len(g.Members) == members, ps.died()
	})
	if err != nil {
		return err
	}
	records := recordsFor(shards, messages)
	first := min(warmUp*partitions*len(shards), messages/2)
	if err := b.client.ProduceSync(ctx, records[:first]...).FirstErr(); err != nil {
		return err
	}
	err = waitUntil(ctx, reportEvery, time.Minute, func() (bool, error) { return ps.settled() >= int64(first), ps.died() })
	if err != nil {
		return err
	}
	return b.client.ProduceSync(ctx, records[first:]...).FirstErr()
}

func recordsFor(shards []shard, n int) []*kgo.Record {
	records := make([]*kgo.Record, n)
	for i := range records {
		id := strconv.Itoa(i)
		h := fnv.New32a()
		_, _ = h.Write([]byte(id))
		records[i] = &kgo.Record{
			Topic: shards[h.Sum32()%uint32(len(shards))].Topic, Key: []byte(id), Value: make([]byte, 512), //nolint:gosec // one or two
			Headers: []kgo.RecordHeader{{Key: "_watermill_message_uuid", Value: []byte(id)}},
		}
	}
	return records
}
