package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	client "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/google/uuid"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/internal/testenv/elasticmq"
)

// Names of recipes.
const (
	officialSQSNoOp = "watermill-aws, no-op"
	sqsNoOp         = "millpond, no-op"
	officialSQSBusy = "watermill-aws, 2 ms"
	sqsBusy         = "millpond, 2 ms"
)

// queues is an emulator of SQS.
type queues struct {
	server *elasticmq.Server
	config aws.Config
	broker brokers.Broker
}

func startQueues(ctx context.Context) (*queues, error) {
	server, err := elasticmq.StartInMemory(ctx) // to measure the clients
	if err != nil {
		return nil, err
	}
	config := aws.Config{
		Region: elasticmq.Region, BaseEndpoint: aws.String(server.URL()),
		Credentials: credentials.NewStaticCredentialsProvider("millpond", "millpond", ""),
	}
	broker, err := sqs.New(ctx, sqs.Config{AWS: &config, Consume: sqs.Consume{Wait: sqsWait}})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &queues{server, config, broker}, nil
}

// sqsWait bounds how long closing a subscriber takes.
const sqsWait = time.Second

func (q *queues) close() error { return errors.Join(q.broker.Close(), q.server.Close()) }

func (q *queues) fill(ctx context.Context, n int) (string, error) {
	topic := topicName + "-" + uuid.NewString()
	if _, err := client.NewFromConfig(q.config).CreateQueue(ctx, &client.CreateQueueInput{QueueName: &topic}); err != nil {
		return "", fmt.Errorf("create a queue: %w", err)
	}
	return topic, publishAll(q.broker, topic, n)
}

func (q *queues) subscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	s, err := q.broker.Subscriber(brokers.SubscriberConfig{Group: benchGroup, InFlight: queueInFlight, Logger: log})
	return s, nil, err
}

func (q *queues) officialSubscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	s, err := wmsqs.NewSubscriber(wmsqs.SubscriberConfig{AWSConfig: q.config, DoNotCreateQueueIfNotExists: true}, log)
	return s, nil, err
}

// measureSQS measures the adapters on an emulator.
func (r *report) measureSQS(ctx context.Context, o options) (err error) {
	o.progress.Print("Starting an SQS emulator")
	q, err := startQueues(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.close()) }()
	return r.add(ctx, o, &group{
		name:  "sqs",
		title: "SQS: millpond's adapter and watermill-aws",
		about: fmt.Sprintf("A plain Watermill router without an inbox on either adapter, messages of 1 KiB in a queue of ElasticMQ, which keeps them in memory, filled before. "+
			"watermill-aws has its defaults, millpond %d messages in flight. "+
			"The clock runs from the first delivery to the end of the last handler; a message that is lost, or comes twice, or any error that is logged, ends the bench.", queueInFlight),
		workers: []int{queueInFlight},
		recipes: []recipe{
			{name: officialSQSNoOp, routed: true, job: consume(q.fill, 0, q.officialSubscriber)},
			{name: sqsNoOp, against: officialSQSNoOp, routed: true, job: consume(q.fill, 0, q.subscriber)},
			{name: officialSQSBusy, routed: true, job: consume(q.fill, busyTime, q.officialSubscriber)},
			{name: sqsBusy, against: officialSQSBusy, routed: true, job: consume(q.fill, busyTime, q.subscriber)},
		},
		longer: queuesLonger, close: func() {},
	})
}
