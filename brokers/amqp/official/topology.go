package official

import (
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers/amqp"
	"github.com/millpond-go/millpond/internal/logger"
)

// watermill returns the configuration of a group's subscriber, or of a publisher, with the names of
// brokers/amqp.
func (b *Broker) watermill(dial *dialer, group, purpose string, marshaler wmamqp.Marshaler, builder wmamqp.TopologyBuilder) wmamqp.Config {
	c := &b.config
	properties := amqp091.NewConnectionProperties()
	properties.SetClientConnectionName(c.ConnectionName + " " + purpose)
	constant := func(string) string { return "" }
	topic := func(topic string) string { return topic }
	config := wmamqp.Config{
		Connection: wmamqp.ConnectionConfig{
			AmqpURI: "amqp://" + c.Addresses[0] + "/", // the dialer adds the others, and TLS
			AmqpConfig: &amqp091.Config{
				SASL: []amqp091.Authentication{b.account.Credentials()}, Vhost: c.VirtualHost, Heartbeat: c.Heartbeat,
				Properties: properties, Locale: "en_US", Dial: dial.dial,
			},
			Reconnect: &wmamqp.ReconnectConfig{
				BackoffInitialInterval: 100 * time.Millisecond, BackoffMultiplier: 1.5, BackoffRandomizationFactor: 0.5, BackoffMaxInterval: 2 * time.Second,
			},
		},
		Marshaler:       marshaler,
		Exchange:        wmamqp.ExchangeConfig{GenerateName: topic, Type: "fanout", Durable: true},
		Queue:           wmamqp.QueueConfig{GenerateName: func(topic string) string { return b.queue(topic, group) }, Durable: true},
		QueueBind:       wmamqp.QueueBindConfig{GenerateRoutingKey: constant},
		Publish:         wmamqp.PublishConfig{GenerateRoutingKey: constant, ConfirmDelivery: true},
		Consume:         wmamqp.ConsumeConfig{Qos: wmamqp.QosConfig{PrefetchCount: 1}},
		TopologyBuilder: builder,
	}
	switch c.Topology.Preset {
	case amqp.PresetQueue:
		config.Exchange = wmamqp.ExchangeConfig{GenerateName: constant}
		config.Publish.GenerateRoutingKey = topic
	case amqp.PresetRouting:
		config.Exchange.GenerateName = func(string) string { return c.Topology.Exchange }
		config.Exchange.Type = string(c.Topology.ExchangeType)
		config.Publish.GenerateRoutingKey, config.QueueBind.GenerateRoutingKey = topic, topic
	case amqp.PresetPubSub:
	}
	if c.Watermill != nil {
		c.Watermill(&config)
	}
	return config
}

// queue returns a group's queue. Subscribe has already reported an invalid name.
func (b *Broker) queue(topic, group string) string {
	name, _ := b.account.Queue(topic, group)
	return name
}

// builder declares what a subscriber needs, as brokers/amqp does, each time watermill-amqp has
// connected.
type builder struct {
	declaring *amqp.Subscriber
	exchanges
}

func (b builder) BuildTopology(_ *amqp091.Channel, params wmamqp.BuildTopologyParams, _ wmamqp.Config, _ watermill.LoggerAdapter) error {
	return b.declaring.SubscribeInitialize(params.Topic)
}

// exchanges declares what a publisher needs.
type exchanges struct{ asIs bool }

func (e exchanges) BuildTopology(*amqp091.Channel, wmamqp.BuildTopologyParams, wmamqp.Config, watermill.LoggerAdapter) error {
	return nil
}

func (e exchanges) ExchangeDeclare(channel *amqp091.Channel, name string, config wmamqp.Config) error {
	if e.asIs {
		return nil
	}
	return channel.ExchangeDeclare(name, config.Exchange.Type, config.Exchange.Durable, false, false, false, nil)
}

// serial returns a logger that lets one goroutine log at a time. Watermill-amqp replaces its
// connection without a lock while others read it, but each of its goroutines logs in between: the
// lock makes the others see the new connection.
func serial(inner watermill.LoggerAdapter) watermill.LoggerAdapter {
	var mu sync.Mutex
	return &logger.Logger{Inner: inner, Around: func(write func()) {
		mu.Lock()
		defer mu.Unlock()
		write()
	}}
}
