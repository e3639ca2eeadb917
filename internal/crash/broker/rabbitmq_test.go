package broker

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/internal/testenv/rabbitmq"
)

const (
	heartbeat  = time.Second
	retryDelay = time.Second

	queue = topic + "_" + group
)

func init() {
	for _, version := range rabbitmq.Versions() {
		kinds["rabbitmq-"+string(version)] = &kind{
			start:   func(t *testing.T, s setup) server { return newRabbit(t, version, s) },
			open:    func(ctx context.Context, s setup, _ *recorder) (brokers.Broker, error) { return openRabbit(ctx, s) },
			vary:    func(_ uint64, _ bool, s *setup) { s.Limit = ampleLimit },
			places:  func(setup) []place { return nil },
			absence: 3 * heartbeat,
			returns: true,
		}
	}
}

// ampleLimit is more than the deliveries that a run can spend: a kill of the broker spends
// one of each message that is held.
const ampleLimit = 1000

func openRabbit(ctx context.Context, s setup) (brokers.Broker, error) {
	at, err := amqp091.ParseURI(s.Broker)
	if err != nil {
		return nil, err
	}
	return amqp.New(ctx, amqp.Config{
		Addresses: []string{fmt.Sprintf("%s:%d", at.Host, at.Port)}, VirtualHost: at.Vhost,
		Username: at.Username, Password: at.Password,
		Heartbeat: heartbeat,
		Topology:  amqp.Topology{DeliveryLimit: s.Limit},
		Consume: amqp.Consume{
			RetryDelays: []time.Duration{retryDelay},
			Unmarshal:   func(d *amqp091.Delivery) (*message.Message, error) { return s.read(amqp.ReadDelivery(d)) },
		},
	})
}

// rabbit is one RabbitMQ with the queue of the service.
type rabbit struct {
	*rabbitmq.Server

	setup setup // as a worker would have it
}

func newRabbit(t *testing.T, version rabbitmq.Version, s setup) server {
	t.Helper()
	r := &rabbit{testenv.PrivateRabbitMQ(t, version), s}
	r.setup.Broker = r.URL()
	b, err := r.client(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	subscriber, err := b.Subscriber(brokers.SubscriberConfig{Group: group})
	if err != nil {
		t.Fatal(err)
	}
	defer subscriber.Close()
	if err := subscriber.(message.SubscribeInitializer).SubscribeInitialize(topic); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rabbit) address() string { return r.URL() }

func (r *rabbit) client(ctx context.Context) (brokers.Broker, error) { return openRabbit(ctx, r.setup) }

// left is how many messages wait. Those that are handed out are not among them.
func (r *rabbit) left(ctx context.Context) (int64, error) {
	waiting, err := r.inspect(ctx, queue)
	if err != nil {
		return 0, err
	}
	delayed, err := r.inspect(ctx, queue+".retry."+retryDelay.String())
	return int64(waiting.Messages + delayed.Messages), err
}

func (r *rabbit) dropped(ctx context.Context) (int64, error) {
	dead, err := r.inspect(ctx, queue+".dead")
	return int64(dead.Messages), err
}

func (r *rabbit) connected(ctx context.Context) (int, error) {
	q, err := r.inspect(ctx, queue)
	return q.Consumers, err
}

// inspect asks for a queue. One that nobody has needed yet is empty.
func (r *rabbit) inspect(ctx context.Context, name string) (q amqp091.Queue, err error) {
	connection, err := amqp091.DialConfig(r.URL(), amqp091.Config{Dial: amqp091.DefaultDial(3 * time.Second)})
	if err != nil {
		return q, err
	}
	defer func() { _ = connection.CloseDeadline(time.Now().Add(time.Second)) }()
	stop := context.AfterFunc(ctx, func() { _ = connection.CloseDeadline(time.Now()) })
	defer stop()
	channel, err := connection.Channel()
	if err != nil {
		return q, err
	}
	q, err = channel.QueueDeclarePassive(name, true, false, false, false, nil)
	if refused, ok := errors.AsType[*amqp091.Error](err); ok && refused.Code == amqp091.NotFound {
		return amqp091.Queue{}, nil
	}
	return q, err
}

func (r *rabbit) describe(ctx context.Context) string {
	text := ""
	for _, name := range []string{queue, queue + ".retry." + retryDelay.String(), queue + ".dead"} {
		q, err := r.inspect(ctx, name)
		text += fmt.Sprintf("%s: %+v, %v\n", name, q, err)
	}
	return text
}
