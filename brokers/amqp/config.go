package amqp

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Config configures a [Broker]. Only Addresses is required. Each field that a URL can
// set has its parameter in the package documentation.
type Config struct {
	// Addresses are the nodes, host:port, in the order in which they are tried. The default port is
	// 5672, or 5671 with TLS.
	Addresses []string

	VirtualHost string // "/" if ""

	// TLS, if not nil, encrypts all connections. It is cloned.
	TLS *tls.Config

	// Username and Password are the credentials. If Username is empty, both come from
	// MILLPOND_AMQP_USERNAME and MILLPOND_AMQP_PASSWORD; if these are not set, both are guest.
	Username, Password string

	// ConnectTimeout bounds New, each attempt to connect, and Subscribe.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// Heartbeat is how often a connection shows that it is alive. After three without an answer it
	// counts as lost. Less than a second means no heartbeat.
	Heartbeat time.Duration `config:"heartbeat" default:"10s" check:"positive"`

	// ConnectionName names the program in the broker's lists and logs.
	ConnectionName string `config:"connection_name" default:"millpond"`

	Topology Topology `config:""`
	Consume  Consume  `config:""`
	Publish  Publish  `config:""`
}

// Preset is how topics and groups become exchanges and queues.
type Preset string

const (
	// PresetPubSub has a fanout exchange for each topic, named like it, and a queue
	// "<topic>_<group>" for each group: every group gets its own copy. It matches watermill-amqp's
	// NewDurablePubSubConfig.
	PresetPubSub Preset = "pubsub"
	// PresetQueue has a queue for each topic, named like it, and no exchange. All subscribers share
	// its messages, whatever their groups. It matches watermill-amqp's NewDurableQueueConfig.
	PresetQueue Preset = "queue"
	// PresetRouting has one exchange, Topology.Exchange, and a queue "<topic>_<group>" for each
	// group. The topic of Publish is the routing key, and the topic of Subscribe the binding key,
	// which may be a pattern. It matches watermill-amqp's NewDurableTopicConfig.
	PresetRouting Preset = "routing"
)

// QueueType is the kind of the queues.
type QueueType string

const (
	// QueueQuorum counts deliveries and dead-letters messages over a limit.
	QueueQuorum QueueType = "quorum"
	// QueueClassic is the type that watermill-amqp declares. It counts no deliveries and has no
	// limit.
	QueueClassic QueueType = "classic"
)

// ExchangeType is the kind of the exchange of PresetRouting.
type ExchangeType string

const (
	ExchangeTopic  ExchangeType = "topic"  // binding keys may be patterns
	ExchangeDirect ExchangeType = "direct" // binding keys must equal the routing key
)

// Topology says which exchanges and queues exist. They are declared again on every connection. All
// programs that use a queue must declare it alike.
type Topology struct {
	Preset       Preset       `config:"preset" default:"pubsub" check:"pubsub|queue|routing"`
	Exchange     string       `config:"exchange"`                                           // of PresetRouting, which requires it
	ExchangeType ExchangeType `config:"exchange_type" default:"topic" check:"topic|direct"` // of PresetRouting
	QueueType    QueueType    `config:"queue_type" default:"quorum" check:"quorum|classic"`

	// DeliveryLimit is the x-delivery-limit of quorum queues. A message that has failed this often
	// is delivered once more, and becomes a dead letter if it fails again.
	DeliveryLimit int `config:"delivery_limit" default:"20" check:"1..2147483647"`

	// AsIs declares nothing: exchanges and queues are used as they exist, and their limits are not
	// known.
	AsIs bool `config:"declare" check:"true|false"`

	// Arguments are added to those of work queues, and take precedence.
	Arguments amqp091.Table

	// Queue, if not nil, replaces the preset's queue name for a topic and a group.
	Queue func(topic, group string) string
}

// Consume configures subscribers.
type Consume struct {
	// RetryDelays are the growing steps by which given-back messages are delayed. From RabbitMQ 4.3
	// on the first and the last bound the server's own delay. Longer delays, and all delays on
	// older servers, use one retry queue per step.
	RetryDelays []time.Duration `config:"retry_delays" default:"1s,10s,1m,10m"`

	// RedeliveryDelay is the first pause before a nacked message is given back to a server without
	// delays, if its GiveBack sets none. It doubles with each delivery, up to the longer of one
	// second and itself.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"10ms" check:"positive"`

	// ConsumerTimeout is the server's consumer_timeout, after which it redelivers an unsettled
	// message. It cannot be read; the default here is the server's default.
	ConsumerTimeout time.Duration `config:"consumer_timeout" default:"30m" check:"positive"`

	// ProducerTime uses producers' timestamps, in seconds, for Delivery.Time. The broker sets none.
	ProducerTime bool `config:"time" check:"none|producer"`

	// Unmarshal, if not nil, replaces the wire format for reading. If it returns an error or
	// panics, that becomes Delivery.Undecodable, and the message is read in the wire format. It is
	// called for each delivery, and must not keep, change or settle it.
	Unmarshal func(*amqp091.Delivery) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// Timeout bounds Publish while the broker does not answer.
	Timeout time.Duration `config:"publish_timeout" default:"30s" check:"positive"`

	// MaxBytes is the largest payload that is sent, in bytes. Zero: the server's limit
	// (max_message_size), which cannot be read, and is learned when the server refuses a message.
	MaxBytes int `config:"max_message_bytes" check:"positive"`

	// Marshal, if not nil, may change what is published, such as content type, priority or
	// expiration. It must leave MessageId as it is.
	Marshal func(topic string, msg *message.Message, p *amqp091.Publishing) error
}

const (
	pkg         = "amqp"
	longestStep = 24 * time.Hour
	fixDelays   = "use growing durations of whole milliseconds, a day at most, such as 1s,10s,1m"
)

func (c *Config) setDefaults() {
	port := "5672"
	if c.TLS != nil {
		port = "5671"
	}
	c.Addresses = urlquery.WithPorts(c.Addresses, port)
	c.VirtualHost = cmp.Or(c.VirtualHost, "/")
	field.SetDefaults(c)
}

// validate returns an error that names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(pkg, c, named, func(wrong urlquery.Wrong) {
		if len(c.Addresses) == 0 {
			wrong("Addresses", "empty", "give at least one host:port")
		}
		for _, address := range c.Addresses {
			if host, port, err := net.SplitHostPort(address); err != nil && address == "" || err == nil && (host == "" || port == "") {
				wrong("Addresses", fmt.Sprintf("%q", c.Addresses), "write host:port")
			}
		}
		if d := c.Consume.RetryDelays; d != nil && !growing(d) {
			wrong("Consume.RetryDelays", d, fixDelays)
		}
		if routing := c.Topology.Preset == PresetRouting; routing != (c.Topology.Exchange != "") {
			wrong("Topology.Exchange", fmt.Sprintf("%q", c.Topology.Exchange), "name the exchange with the preset routing, and only with that")
		}
	})
}

// growing reports whether the steps are valid for retry queues.
func growing(steps []time.Duration) bool {
	for i, d := range steps {
		if d < time.Millisecond || d > longestStep || d%time.Millisecond != 0 || i > 0 && d <= steps[i-1] {
			return false
		}
	}
	return len(steps) > 0
}
