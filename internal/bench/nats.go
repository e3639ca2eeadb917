package main

import (
	"context"
	"errors"
	"fmt"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	natsgo "github.com/nats-io/nats.go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/nats"
	natsserver "github.com/millpond-go/millpond/internal/testenv/nats"
)

// Names of recipes.
const (
	officialNATSNoOp = "watermill-nats, no-op"
	natsNoOp         = "millpond, no-op"
	officialNATSBusy = "watermill-nats, 2 ms"
	natsBusy         = "millpond, 2 ms"
)

// streams is a NATS server.
type streams struct {
	server *natsserver.Server
	broker brokers.Broker
}

func startStreams(ctx context.Context) (*streams, error) {
	server, err := natsserver.StartUnsynced(ctx) // to measure the clients
	if err != nil {
		return nil, err
	}
	broker, err := nats.New(ctx, nats.Config{Servers: []string{server.Address()}, CreateStreams: true})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return &streams{server, broker}, nil
}

func (s *streams) close() error { return errors.Join(s.broker.Close(), s.server.Close()) }

func (s *streams) fill(_ context.Context, n int) (string, error) {
	topic := topicName + "-" + uuid.NewString()
	return topic, publishAll(s.broker, topic, n)
}

func (s *streams) subscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	sub, err := s.broker.Subscriber(brokers.SubscriberConfig{Group: benchGroup, InFlight: queueInFlight, Logger: log})
	return sub, nil, err
}

func (s *streams) officialSubscriber(_ context.Context, log *lastError) (message.Subscriber, func() error, error) {
	sub, err := wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL: s.server.URL(), SubscribersCount: queueInFlight, QueueGroupPrefix: benchGroup,
		JetStream: wmnats.JetStreamConfig{SubscribeOptions: []natsgo.SubOpt{natsgo.DeliverAll()}},
	}, log)
	return sub, nil, err
}

// measureNATS measures the adapters on a server with its defaults.
func (r *report) measureNATS(ctx context.Context, o options) (err error) {
	o.progress.Print("Starting a NATS server")
	s, err := startStreams(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	return r.add(ctx, o, &group{
		name:  "nats",
		title: "NATS JetStream: millpond's adapter and watermill-nats",
		about: fmt.Sprintf("A plain Watermill router without an inbox on either adapter, messages of 1 KiB in a stream, filled before. "+
			"Both have %d messages in flight: millpond pulls them, watermill-nats has as many members of a queue group, and waits for the server's word on each ack. "+
			"The clock runs from the first delivery to the end of the last handler; a message that is lost, or comes twice, or any error that is logged, ends the bench.", queueInFlight),
		workers: []int{queueInFlight},
		recipes: []recipe{
			{name: officialNATSNoOp, routed: true, job: consume(s.fill, 0, s.officialSubscriber)},
			{name: natsNoOp, against: officialNATSNoOp, routed: true, job: consume(s.fill, 0, s.subscriber)},
			{name: officialNATSBusy, routed: true, job: consume(s.fill, busyTime, s.officialSubscriber)},
			{name: natsBusy, against: officialNATSBusy, routed: true, job: consume(s.fill, busyTime, s.subscriber)},
		},
		longer: queuesLonger, close: func() {},
	})
}
