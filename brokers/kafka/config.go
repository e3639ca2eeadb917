package kafka

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Config configures a [Broker]. Only Brokers is required. Each field that a URL can
// set has its parameter in the package documentation.
type Config struct {
	// Brokers are the addresses, host:port, of some brokers of the cluster. The default port is
	// 9092.
	Brokers []string

	// TLS, if not nil, encrypts all connections. It is cloned.
	TLS *tls.Config

	// SASL chooses how to authenticate; "" means not at all.
	SASL SASL `config:"sasl" check:"plain|scram-sha-256|scram-sha-512"`
	// Username and Password are the credentials for SASL. If Username is empty, both come from
	// MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD.
	Username, Password string

	// ConnectTimeout bounds New, and each request that Subscribe makes before it returns.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// ClientID names the program in the broker's logs and quotas.
	ClientID string `config:"client_id" default:"millpond"`

	// Options are added last to every client's, so that they take precedence. They are for settings
	// without a field here, such as hooks for metrics, other SASL mechanisms or a dialer. Options
	// that change groups, offsets, callbacks or acks break promises.
	Options []kgo.Opt

	Consume Consume `config:""`
	Publish Publish `config:""`

	mechanism sasl.Mechanism // the SASL mechanism with its credentials
}

// SASL names a SASL mechanism.
type SASL string

// The mechanisms that need only a name and a password.
const (
	SASLPlain       SASL = cluster.SASLPlain
	SASLScramSHA256 SASL = cluster.SASLScramSHA256
	SASLScramSHA512 SASL = cluster.SASLScramSHA512
)

// Order says which messages of a partition wait for others.
type Order string

const (
	// OrderPartition delivers one message of a partition at a time. A nacked message blocks those
	// behind it.
	OrderPartition Order = "partition"
	// OrderKey delivers one message with a key at a time, and messages with other keys
	// concurrently. Messages without a key wait for none.
	OrderKey Order = "key"
	// OrderNone lets no message wait for another.
	OrderNone Order = "none"
)

// Protocol is how the members of a group share its partitions.
type Protocol string

const (
	// ProtocolClassic is the protocol in which members assign partitions themselves, here always
	// with the cooperative sticky assignor.
	ProtocolClassic Protocol = "classic"
	// ProtocolConsumer is the protocol of KIP-848, in which the broker assigns partitions. It needs
	// Kafka 4.0, better 4.3.
	ProtocolConsumer Protocol = "consumer"
)

// Consume configures subscribers.
type Consume struct {
	// InFlightPerPartition is how many deliveries of one partition may be unsettled at a time,
	// within SubscriberConfig.InFlight. With 1 the order is kept.
	InFlightPerPartition int `config:"in_flight_per_partition" default:"1" check:"positive"`

	// Order is OrderPartition by default if only one message of a partition can be in flight, and
	// otherwise OrderNone.
	Order Order `config:"order" check:"partition|key|none"`

	// StartAtNewest makes a group without offsets begin with messages published from now on.
	// Otherwise it begins with the topic's oldest message.
	StartAtNewest bool `config:"offset" check:"oldest|newest"`

	Protocol Protocol `config:"protocol" default:"classic" check:"classic|consumer"`

	// SessionTimeout is how long a member may send no heartbeat before the broker gives its
	// partitions to others. With ProtocolConsumer the broker decides, by
	// group.consumer.session.timeout.ms.
	SessionTimeout time.Duration `config:"session_timeout" default:"10s" check:"positive"`

	// RebalanceDrain is how long a partition that moves to another member waits for running
	// handlers.
	RebalanceDrain time.Duration `config:"rebalance_drain" default:"10s" check:"positive"`

	// CommitInterval is how often offsets are committed.
	CommitInterval time.Duration `config:"commit_interval" default:"1s" check:"positive"`

	// CommitDistance bounds, per partition, how many messages are started from the oldest unsettled
	// one on. After a crash that many may be redelivered, in addition to those settled since the
	// last commit.
	CommitDistance int `config:"commit_distance" default:"1000" check:"positive"`

	// RedeliveryDelay is the first pause before a nacked message is redelivered if its GiveBack
	// sets none. It doubles with each delivery, up to the longer of one second and itself.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"10ms" check:"positive"`

	// WaitForTopic is how long Subscribe waits for a topic that does not exist before it returns an
	// error. Zero: not at all.
	WaitForTopic time.Duration `config:"wait_for_topic" check:"positive"`

	// ProducerTime uses producers' timestamps for Delivery.Time. Otherwise only timestamps that the
	// broker sets count (message.timestamp.type=LogAppendTime).
	ProducerTime bool `config:"time" check:"broker|producer"`

	// Unmarshal, if not nil, replaces the wire format for reading. If it returns an error or
	// panics, that becomes Delivery.Undecodable, and the message is read in the wire format. It is
	// called for each delivery, and must not keep or change the record.
	Unmarshal func(*kgo.Record) (*message.Message, error)
}

// Partitioner chooses the partition of a message with a key. For messages without one, the client
// chooses a partition per batch.
type Partitioner string

const (
	PartitionerMurmur2 Partitioner = "murmur2" // like Kafka's own clients
	PartitionerSarama  Partitioner = "sarama"  // like sarama, and so watermill-kafka
)

// Publish configures publishers.
type Publish struct {
	// Key returns a message's key, or nil for none. If it is set, KeyMetadata is ignored. Neither
	// is used for a copy that already has a key (brokers.WithKey).
	Key func(topic string, msg *message.Message) []byte

	// KeyMetadata names the metadata field whose value is the key. A message without the field has
	// no key.
	KeyMetadata string `config:"key_metadata"`

	Partitioner Partitioner `config:"partitioner" default:"murmur2" check:"murmur2|sarama"`

	// MaxBytes is the largest message, and the largest batch, that is sent, in bytes. The default
	// is that of message.max.bytes.
	MaxBytes int `config:"max_message_bytes" default:"1000012" check:"512..67108864"`

	// Timeout bounds Publish while the broker does not answer. The first message to a topic may
	// take twice as long, because it needs a request first.
	Timeout time.Duration `config:"publish_timeout" default:"30s" check:"positive"`

	// CreateTopics creates missing topics when they are published or subscribed to, with
	// Partitions and Replication.
	CreateTopics bool `config:"create_topics"`
	// Partitions of new topics. Zero means the broker's default.
	Partitions int `config:"partitions" check:"1..2147483647"`
	// Replication of new topics. Zero means the broker's default.
	Replication int `config:"replication" check:"1..32767"`
}

const pkg = "kafka"

func (c *Config) setDefaults() {
	c.Brokers = cluster.WithPorts(c.Brokers)
	field.SetDefaults(c)
}

// access returns the settings for reaching the cluster.
func (c *Config) access() *cluster.Access {
	return &cluster.Access{
		Package: pkg, Brokers: c.Brokers, TLS: c.TLS, SASL: string(c.SASL), Username: c.Username, Password: c.Password, ConnectTimeout: c.ConnectTimeout,
	}
}

// validate returns an error that names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(pkg, c, named, func(wrong urlquery.Wrong) {
		c.access().Check(wrong)
		if n := c.Consume.InFlightPerPartition; n > 1 && c.Consume.Order == OrderPartition {
			wrong("Consume.Order", OrderPartition, fmt.Sprintf("with %d in flight per partition the order of a partition cannot be kept: use key or none, or 1 in flight", n))
		}
	})
}
