package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	_ "github.com/millpond-go/millpond/brokers/amqp" // the scheme amqp
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

// Names of recipes.
const (
	officialRabbitNoOp    = "watermill-amqp, no-op"
	rabbitNoOp            = "millpond, no-op"
	officialRabbitBusy    = "watermill-amqp, 2 ms"
	rabbitBusy            = "millpond, 2 ms"
	officialRabbitPublish = "watermill-amqp, publish with confirms"
	rabbitPublish         = "millpond, publish"
)

const (
	queueInFlight = 32
	benchGroup    = "bench"
	queuesLonger  = 4 // cells than others: the first deliveries come slowly
)

// rabbit is a RabbitMQ server.
type rabbit struct {
	server *rabbitmq.Server
	broker brokers.Broker
}

func startRabbit(ctx context.Context) (*rabbit, error) {
	server, err := rabbitmq.Start(ctx, rabbitmq.Config{Version: rabbitmq.Newest})
	if err != nil {
		return nil, err
	}
	broker, err := brokers.Open(ctx, server.URL())
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &rabbit{server, broker}, nil
}

func (r *rabbit) close() error { return errors.Join(r.broker.Close(), r.server.Close()) }

// newTopic makes a topic with the queue of the group.
func (r *rabbit) newTopic(context.Context) (string, error) {
	topic := topicName + "-" + uuid.NewString()
	s, err := r.broker.Subscriber(brokers.SubscriberConfig{Group: benchGroup})
	if err != nil {
		return "", err
	}
	initializer, ok := s.(message.SubscribeInitializer)
	if !ok {
		return "", errors.Join(errors.New("the subscriber cannot declare"), s.Close())
	}
	return topic, errors.Join(initializer.SubscribeInitialize(topic), s.Close())
}

func (r *rabbit) fill(ctx context.Context, n int) (string, error) {
	topic, err := r.newTopic(ctx)
	if err != nil {
		return "", err
	}
	return topic, publishAll(r.broker, topic, n)
}

// publishAll publishes n messages whose ids are their numbers.
func publishAll(broker brokers.Broker, topic string, n int) error {
	p, err := broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return err
	}
	return errors.Join(p.Publish(topic, numbered(n)...), p.Close())
}

func (r *rabbit) subscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	s, err := r.broker.Subscriber(brokers.SubscriberConfig{Group: benchGroup, InFlight: queueInFlight, Logger: log})
	return s, nil, err
}

func (r *rabbit) publisher(context.Context) (message.Publisher, func() error, error) {
	p, err := r.broker.Publisher(brokers.PublisherConfig{})
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

// officialConfig is watermill-amqp's on the queues of millpond, which are there already.
func (r *rabbit) officialConfig() wmamqp.Config {
	config := wmamqp.NewDurablePubSubConfig(r.server.URL(), wmamqp.GenerateQueueNameTopicNameWithSuffix(benchGroup))
	config.TopologyBuilder = thereAlready{}
	config.Consume.Qos.PrefetchCount = queueInFlight
	config.Publish.ConfirmDelivery = true
	return config
}

func (r *rabbit) officialSubscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	s, err := wmamqp.NewSubscriber(r.officialConfig(), log)
	return s, nil, err
}

func (r *rabbit) officialPublisher(context.Context) (message.Publisher, func() error, error) {
	p, err := wmamqp.NewPublisher(r.officialConfig(), &lastError{})
	if err != nil {
		return nil, nil, err
	}
	return p, p.Close, nil
}

func (r *rabbit) recipes() []recipe {
	return []recipe{
		{name: officialRabbitNoOp, routed: true, job: consume(r.fill, 0, r.officialSubscriber)},
		{name: rabbitNoOp, against: officialRabbitNoOp, routed: true, job: consume(r.fill, 0, r.subscriber)},
		{name: officialRabbitBusy, routed: true, job: consume(r.fill, busyTime, r.officialSubscriber)},
		{name: rabbitBusy, against: officialRabbitBusy, routed: true, job: consume(r.fill, busyTime, r.subscriber)},
		{name: officialRabbitPublish, job: publishInBatches(r.newTopic, r.officialPublisher)},
		{name: rabbitPublish, against: officialRabbitPublish, job: publishInBatches(r.newTopic, r.publisher)},
	}
}

// measureRabbitMQ measures the adapters on a broker.
func (r *report) measureRabbitMQ(ctx context.Context, o options) (err error) {
	o.progress.Print("Starting a RabbitMQ broker")
	broker, err := startRabbit(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.close()) }()
	return r.add(ctx, o, &group{
		name:  "rabbitmq",
		title: "RabbitMQ: millpond's adapter and watermill-amqp",
		about: fmt.Sprintf("A plain Watermill router without an inbox on either adapter, messages of 1 KiB, the same quorum queues of RabbitMQ 4.3 or later, filled before. "+
			"Both prefetch %d messages; watermill-amqp hands them to the handler one at a time, millpond all at once. "+
			"The clock runs from the first delivery to the end of the last handler; a message that is lost, or comes twice, or any error that is logged, ends the bench. "+
			"Publishing is one caller of Publish with %d messages each time, each confirmed by the queue.", queueInFlight, publishBatch),
		workers: []int{queueInFlight}, recipes: broker.recipes(), longer: queuesLonger, least: 2 * publishBatch, close: func() {},
	})
}

// thereAlready declares nothing.
type thereAlready struct{}

var _ wmamqp.TopologyBuilder = thereAlready{}

// BuildTopology implements wmamqp.TopologyBuilder.
func (thereAlready) BuildTopology(*amqp091.Channel, wmamqp.BuildTopologyParams, wmamqp.Config, watermill.LoggerAdapter) error {
	return nil
}

// ExchangeDeclare implements wmamqp.TopologyBuilder.
func (thereAlready) ExchangeDeclare(*amqp091.Channel, string, wmamqp.Config) error { return nil }
