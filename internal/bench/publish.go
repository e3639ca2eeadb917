package main

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strconv"
	"time"

	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
)

// publishBatch is how many messages a call of Publish has.
const publishBatch = 100

// openPublisher opens a publisher, and returns what closes it and all that belongs to it.
type openPublisher func(context.Context) (p message.Publisher, end func() error, err error)

// officialPublisher is watermill-kafka's publisher with its defaults.
func (c *cluster) officialPublisher(context.Context) (message.Publisher, func() error, error) {
	p, err := wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: []string{c.server.Address()}}, nil)
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

// publisher is millpond's publisher with its defaults.
func (c *cluster) publisher(ctx context.Context) (message.Publisher, func() error, error) {
	broker, err := brokers.Open(ctx, "kafka://"+c.server.Address())
	if err != nil {
		return nil, nil, err
	}
	p, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return nil, nil, errors.Join(err, broker.Close())
	}
	return p, func() error { return errors.Join(p.Close(), broker.Close()) }, nil
}

// publish is publishInBatches, and counts what the topic has in the end.
func (c *cluster) publish(open openPublisher) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, workers, n int) (*job, error) {
		var topic string
		j, err := publishInBatches(func(ctx context.Context) (name string, err error) {
			topic, err = c.newTopic(ctx)
			return topic, err
		}, open)(ctx, workers, n)
		if err != nil {
			return nil, err
		}
		end := j.close
		j.close = func() error {
			return errors.Join(end(), c.holds(ctx, topic, publishBatch+n), c.deleteTopic(ctx, topic))
		}
		return j, nil
	}
}

func kilobytes(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(uuid.NewString(), kilobyte())
	}
	return messages
}

// numbered returns n messages whose ids are their numbers.
func numbered(n int) []*message.Message {
	messages := make([]*message.Message, n)
	for i := range messages {
		messages[i] = message.NewMessage(strconv.Itoa(i), kilobyte())
	}
	return messages
}

// publishInBatches makes a job of messages that are published to a new topic in batches,
// one after another.
func publishInBatches(newTopic func(context.Context) (string, error), open openPublisher) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, _, n int) (*job, error) {
		topic, err := newTopic(ctx)
		if err != nil {
			return nil, err
		}
		p, end, err := open(ctx)
		if err != nil {
			return nil, err
		}
		if err := p.Publish(topic, kilobytes(publishBatch)...); err != nil { // it now knows the topic
			return nil, errors.Join(err, end())
		}
		messages := kilobytes(n)
		return &job{
			run: func() (time.Duration, []time.Duration, error) {
				start := time.Now()
				for batch := range slices.Chunk(messages, publishBatch) {
					if err := p.Publish(topic, batch...); err != nil {
						return 0, nil, err
					}
				}
				return time.Since(start), nil, nil
			},
			close: end,
		}, nil
	}
}

// kilobyte is a payload of 1 KiB: an event with a text that compresses as badly as text can.
func kilobyte() []byte {
	b := payload(uuid.NewString())
	for len(b) < 1<<10 {
		b = append(b, rand.Text()...)
	}
	return b[:1<<10]
}
