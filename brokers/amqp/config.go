package amqp

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/internal/urlquery"
)

// Config configures a [Broker]. Only Addresses is required. Each field that a URL can
// set has its parameter in the package documentation.
type Config struct {
	// Addresses are the nodes, host:port, which are tried in this order. Without a port
	// 5672 is meant, with TLS 5671.
	Addresses []string

	VirtualHost string // "/" if ""

	// TLS, if not nil, encrypts all connections. It is cloned.
	TLS *tls.Config

	// Username and Password are the credentials. If Username is empty, both come from
	// MILLPOND_AMQP_USERNAME and MILLPOND_AMQP_PASSWORD, and are guest if these are not
	// set.
	Username, Password string

	// ConnectTimeout bounds New, each attempt to connect, and Subscribe. Zero means 10
	// seconds.
	ConnectTimeout time.Duration

	// Heartbeat is how often a connection shows that it is alive; after three without an
	// answer it counts as lost. Zero means 10 seconds; less than a second is none.
	Heartbeat time.Duration

	// ConnectionName names the program in the broker's lists and logs. Empty means
	// "millpond".
	ConnectionName string

	Topology Topology
	Consume  Consume
	Publish  Publish
}

// Preset is how topics and groups become exchanges and queues.
type Preset string

const (
	// PresetPubSub has a fanout exchange for each topic, of its name, and a queue
	// "<topic>_<group>" for each group: every group gets its own copy. It is that of
	// watermill-amqp's NewDurablePubSubConfig.
	PresetPubSub Preset = "pubsub"
	// PresetQueue has a queue for each topic, of its name, and no exchange. All
	// subscribers share its messages, whatever their groups. It is that of
	// watermill-amqp's NewDurableQueueConfig.
	PresetQueue Preset = "queue"
	// PresetRouting has one exchange, Topology.Exchange, where the topic of Publish is
	// the routing key and that of Subscribe the binding key, which may be a pattern; and
	// a queue "<topic>_<group>" for each group. It is that of watermill-amqp's
	// NewDurableTopicConfig.
	PresetRouting Preset = "routing"
)

// QueueType is the kind of the queues.
type QueueType string

const (
	// QueueQuorum counts deliveries and hands messages over a limit to dead letters.
	QueueQuorum QueueType = "quorum"
	// QueueClassic is what watermill-amqp declares. It counts nothing and has no limit.
	QueueClassic QueueType = "classic"
)

// ExchangeType is the kind of the exchange of PresetRouting.
type ExchangeType string

const (
	ExchangeTopic  ExchangeType = "topic"  // binding keys may be patterns
	ExchangeDirect ExchangeType = "direct" // binding keys are compared
)

// Topology says which exchanges and queues there are. They are declared again on every
// connection; all programs that use a queue must declare it alike.
type Topology struct {
	Preset       Preset       // PresetPubSub if ""
	Exchange     string       // of PresetRouting, which requires it
	ExchangeType ExchangeType // of PresetRouting; ExchangeTopic if ""
	QueueType    QueueType    // QueueQuorum if ""

	// DeliveryLimit is the x-delivery-limit of quorum queues: a message that has failed
	// so often is delivered once more, and becomes a dead letter if it fails again. Zero
	// means 20.
	DeliveryLimit int

	// AsIs declares nothing: exchanges and queues are used as somebody else has made
	// them, and their limits are not known.
	AsIs bool

	// Arguments are added to those of work queues, and win.
	Arguments amqp091.Table

	// Queue, if not nil, names the queue of a topic and a group, instead of the preset.
	Queue func(topic, group string) string
}

// Consume configures subscribers.
type Consume struct {
	// RetryDelays are the steps in which given-back messages are delayed, growing. From
	// RabbitMQ 4.3 on the first and the last are the bounds of the server's own delay;
	// what that cannot do, and everything before, is done by a retry queue for each
	// step. Nil means 1 s, 10 s, 1 min, 10 min.
	RetryDelays []time.Duration

	// RedeliveryDelay is the first pause before a nacked message is given back to a
	// server that knows no delay, if its GiveBack names none; it doubles with each
	// delivery, up to one second or itself. Zero means 10 ms.
	RedeliveryDelay time.Duration

	// ConsumerTimeout is the server's consumer_timeout, after which it takes an unsettled
	// message back. It cannot be read. Zero means 30 minutes, the server's default.
	ConsumerTimeout time.Duration

	// ProducerTime takes the timestamps of producers for Delivery.Time, in seconds. The
	// broker sets none.
	ProducerTime bool

	// Unmarshal, if not nil, replaces the wire format for reading. Its error, or panic, becomes
	// Delivery.Undecodable; the message is then as the wire format reads it. It is called
	// for each delivery, must not keep or change it, and must not settle it.
	Unmarshal func(*amqp091.Delivery) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// Timeout bounds Publish while the broker does not answer. Zero means 30 seconds.
	Timeout time.Duration

	// MaxBytes is the largest payload that is sent. Zero: as large as the server takes
	// (max_message_size), which cannot be read and is learned from its refusal.
	MaxBytes int

	// Marshal, if not nil, may change what is published, such as content type, priority
	// or expiration. MessageId must stay.
	Marshal func(topic string, msg *message.Message, p *amqp091.Publishing) error
}

const (
	pkg                  = "amqp"
	defaultDeliveryLimit = 20
	longestStep          = 24 * time.Hour
)

func (c *Config) setDefaults() {
	port := "5672"
	if c.TLS != nil {
		port = "5671"
	}
	c.Addresses = urlquery.WithPorts(c.Addresses, port)
	c.VirtualHost = cmp.Or(c.VirtualHost, "/")
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	c.ConnectionName = cmp.Or(c.ConnectionName, "millpond")
	c.Topology.Preset = cmp.Or(c.Topology.Preset, PresetPubSub)
	c.Topology.ExchangeType = cmp.Or(c.Topology.ExchangeType, ExchangeTopic)
	c.Topology.QueueType = cmp.Or(c.Topology.QueueType, QueueQuorum)
	c.Topology.DeliveryLimit = cmp.Or(c.Topology.DeliveryLimit, defaultDeliveryLimit)
	if c.Consume.RetryDelays == nil {
		c.Consume.RetryDelays = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
	}
	c.Consume.RedeliveryDelay = cmp.Or(c.Consume.RedeliveryDelay, 10*time.Millisecond)
	c.Consume.ConsumerTimeout = cmp.Or(c.Consume.ConsumerTimeout, 30*time.Minute)
	c.Publish.Timeout = cmp.Or(c.Publish.Timeout, 30*time.Second)
}

// validate names every invalid field and what to write instead.
func (c *Config) validate() error {
	return c.problems(func(field string) string { return "Config." + field })
}

// problems is validate in the caller's names for the fields.
func (c *Config) problems(named func(field string) string) error {
	var errs []error
	wrong := func(field string, value any, fix string) {
		errs = append(errs, fmt.Errorf("amqp: %s is %v: %s", named(field), value, fix))
	}
	if len(c.Addresses) == 0 {
		errs = append(errs, errors.New("amqp: Config.Addresses is empty: give at least one host:port"))
	}
	for _, address := range c.Addresses {
		if host, port, err := net.SplitHostPort(address); err != nil && address == "" || err == nil && (host == "" || port == "") {
			wrong("Addresses", fmt.Sprintf("%q", c.Addresses), "write host:port")
		}
	}
	for field, d := range map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "Heartbeat": c.Heartbeat, "Consume.RedeliveryDelay": c.Consume.RedeliveryDelay,
		"Consume.ConsumerTimeout": c.Consume.ConsumerTimeout, "Publish.Timeout": c.Publish.Timeout,
	} {
		if d < 0 {
			wrong(field, d, "use a positive duration, or 0 for the default")
		}
	}
	if n := c.Publish.MaxBytes; n < 0 {
		wrong("Publish.MaxBytes", n, "use a positive number, or 0 for the server's limit")
	}
	if n := c.Topology.DeliveryLimit; n < 0 || n > math.MaxInt32 {
		wrong("Topology.DeliveryLimit", n, "use a positive number, or 0 for 20")
	}
	if d := c.Consume.RetryDelays; d != nil && !growing(d) {
		wrong("Consume.RetryDelays", d, "give growing durations of whole milliseconds, a day at most")
	}
	t := &c.Topology
	if !slices.Contains([]Preset{"", PresetPubSub, PresetQueue, PresetRouting}, t.Preset) {
		wrong("Topology.Preset", fmt.Sprintf("%q", t.Preset), "use pubsub, queue or routing")
	}
	if !slices.Contains([]QueueType{"", QueueQuorum, QueueClassic}, t.QueueType) {
		wrong("Topology.QueueType", fmt.Sprintf("%q", t.QueueType), "use quorum or classic")
	}
	if !slices.Contains([]ExchangeType{"", ExchangeTopic, ExchangeDirect}, t.ExchangeType) {
		wrong("Topology.ExchangeType", fmt.Sprintf("%q", t.ExchangeType), "use topic or direct")
	}
	if routing := t.Preset == PresetRouting; routing != (t.Exchange != "") {
		wrong("Topology.Exchange", fmt.Sprintf("%q", t.Exchange), "name the exchange with the preset routing, and only with that")
	}
	return errors.Join(errs...)
}

// growing reports whether the steps can be those of retry queues.
func growing(steps []time.Duration) bool {
	for i, d := range steps {
		if d < time.Millisecond || d > longestStep || d%time.Millisecond != 0 || i > 0 && d <= steps[i-1] {
			return false
		}
	}
	return len(steps) > 0
}
