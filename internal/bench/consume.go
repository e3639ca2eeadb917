package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/kafka" // the scheme kafka
)

// openSubscriber opens a subscriber for a group of its own. The router closes it; end
// closes what is left then, and may be nil.
type openSubscriber func(ctx context.Context, log *lastError) (s message.Subscriber, end func() error, err error)

// officialSubscriber is watermill-kafka's subscriber with its defaults, but that it
// begins with the oldest message: the topic is filled before.
func (c *cluster) officialSubscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	s, err := wmkafka.NewSubscriber(wmkafka.SubscriberConfig{
		Brokers: []string{c.server.Address()}, ConsumerGroup: uuid.NewString(), OverwriteSaramaConfig: config,
	}, log)
	return s, nil, err
}

// subscriber is millpond's subscriber with so many messages of a partition in flight.
func (c *cluster) subscriber(inFlight int) openSubscriber {
	url := "kafka://" + c.server.Address()
	if inFlight > 1 {
		url += "?order=none&in_flight_per_partition=" + strconv.Itoa(inFlight)
	}
	return func(ctx context.Context, log *lastError) (message.Subscriber, func() error, error) {
		broker, err := brokers.Open(ctx, url)
		if err != nil {
			return nil, nil, err
		}
		s, err := broker.Subscriber(brokers.SubscriberConfig{Group: uuid.NewString(), InFlight: partitionCount * inFlight, Logger: log})
		if err != nil {
			return nil, nil, errors.Join(err, broker.Close())
		}
		return s, broker.Close, nil
	}
}

// consumed runs a job's messages through a router and checks that each came once.
type consumed struct {
	work    time.Duration  // what the handler does
	runs    []atomic.Int32 // of the handler, by message
	log     *lastError
	begun   atomic.Bool
	handled atomic.Int64
	done    chan struct{} // closed when as many messages as there are have been handled

	first, last time.Time // the first delivery, and the end of the last handler
}

// fillTopic returns a topic with n messages, whose ids are their numbers.
type fillTopic func(ctx context.Context, n int) (topic string, err error)

func (c *cluster) consume(recipe string, work time.Duration, open openSubscriber) func(context.Context, int, int) (*job, error) {
	return consume(func(ctx context.Context, n int) (string, error) { return c.fill(ctx, recipe, n) }, work, open)
}

// consume makes a job of messages in a topic, with a handler that does nothing but to
// take time.
func consume(fill fillTopic, work time.Duration, open openSubscriber) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, _, n int) (*job, error) {
		topic, err := fill(ctx, n)
		if err != nil {
			return nil, err
		}
		of := &consumed{work: work, runs: make([]atomic.Int32, n), log: &lastError{}, done: make(chan struct{})}
		subscriber, end, err := open(ctx, of.log)
		if err != nil {
			return nil, err
		}
		if end == nil {
			end = func() error { return nil }
		}
		router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, of.log)
		if err != nil {
			return nil, errors.Join(err, subscriber.Close(), end())
		}
		router.AddConsumerHandler(handlerName, topic, subscriber, of.handle)
		var running background
		return &job{
			run: func() (time.Duration, []time.Duration, error) {
				running.start(ctx, router.Run)
				if err := of.wait(ctx); err != nil {
					return 0, nil, err
				}
				return of.last.Sub(of.first), nil, nil
			},
			close: func() error { return errors.Join(router.Close(), running.end(), end(), of.check()) },
		}, nil
	}
}

func (c *consumed) handle(msg *message.Message) error {
	if !c.begun.Load() && c.begun.CompareAndSwap(false, true) {
		c.first = time.Now()
	}
	i, err := strconv.Atoi(msg.UUID)
	if err != nil || i < 0 || i >= len(c.runs) {
		return fmt.Errorf("not a message of this cell: %q", msg.UUID)
	}
	c.runs[i].Add(1)
	if c.work > 0 {
		<-time.After(c.work)
	}
	if int(c.handled.Add(1)) == len(c.runs) {
		c.last = time.Now()
		close(c.done)
	}
	return nil
}

// wait waits until all messages were handled. An error that was logged is one, whatever
// came of it.
func (c *consumed) wait(ctx context.Context) error {
	const (
		look   = time.Second
		atMost = 30 * time.Second // without a message
	)
	tick := time.NewTicker(look)
	defer tick.Stop()
	before, at := int64(0), time.Now()
	for {
		finished := false
		select {
		case <-c.done:
			finished = true
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.log.err.Load(); err != nil {
			return *err
		}
		if finished {
			return nil
		}
		if now := c.handled.Load(); now != before {
			before, at = now, time.Now()
		} else if time.Since(at) > atMost {
			return fmt.Errorf("%d of %d messages were handled, and none for %v", now, len(c.runs), atMost)
		}
	}
}

// check is an error if a message did not come once.
func (c *consumed) check() error {
	for i := range c.runs {
		if n := c.runs[i].Load(); n != 1 {
			return fmt.Errorf("message %d was delivered %d times", i, n)
		}
	}
	return nil
}
