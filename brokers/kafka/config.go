package kafka

import (
	"crypto/tls"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

// Config configures a [Broker]. Only Brokers is required. Each field that a URL can
// set has its parameter in the package documentation.
type Config struct {
	// Brokers are the addresses, host:port, by which the cluster is found. Without a
	// port 9092 is meant.
	Brokers []string

	// TLS, if not nil, encrypts all connections. It is cloned.
	TLS *tls.Config

	// SASL chooses how to authenticate; "" means not at all.
	SASL SASL
	// Username and Password are the credentials for SASL. If Username is empty, both
	// come from MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD.
	Username, Password string

	// ConnectTimeout bounds New, and each question that Subscribe asks before it
	// returns. Zero means 10 seconds.
	ConnectTimeout time.Duration

	// ClientID names the program in the broker's logs and quotas. Empty means
	// "millpond".
	ClientID string

	// Options are added to those of every client, last, so that they win. They are for
	// what has no field here, such as hooks for metrics, other SASL mechanisms or a
	// dialer. Options that change groups, offsets, callbacks or acks break promises.
	Options []kgo.Opt

	Consume Consume
	Publish Publish

	mechanism sasl.Mechanism // of SASL, with the credentials
}

// SASL names a SASL mechanism.
type SASL string

// The mechanisms that need no more than a name and a password.
const (
	SASLPlain       SASL = cluster.SASLPlain
	SASLScramSHA256 SASL = cluster.SASLScramSHA256
	SASLScramSHA512 SASL = cluster.SASLScramSHA512
)

// Order says which messages of a partition wait for which.
type Order string

const (
	// OrderPartition delivers one message of a partition at a time. A nacked one keeps
	// those behind it waiting.
	OrderPartition Order = "partition"
	// OrderKey delivers one message of a key at a time, and others beside it. Messages
	// without a key wait for none.
	OrderKey Order = "key"
	// OrderNone lets no message wait for another.
	OrderNone Order = "none"
)

// Protocol is how the members of a group share partitions.
type Protocol string

const (
	// ProtocolClassic is the protocol in which members share partitions among
	// themselves, here always by the cooperative sticky assignor.
	ProtocolClassic Protocol = "classic"
	// ProtocolConsumer is that of KIP-848, in which the broker assigns. It needs Kafka
	// 4.0, better 4.3.
	ProtocolConsumer Protocol = "consumer"
)

// Consume configures subscribers.
type Consume struct {
	// InFlightPerPartition is how many deliveries of one partition may be unsettled at
	// a time, within SubscriberConfig.InFlight. Zero means 1, which keeps the order.
	InFlightPerPartition int

	// Order is OrderPartition if "" and only one message of a partition can be in
	// flight, else OrderNone.
	Order Order

	// StartAtNewest lets a group without offsets begin with what is published from now
	// on. Otherwise it begins with the oldest message that the topic has.
	StartAtNewest bool

	Protocol Protocol // ProtocolClassic if ""

	// SessionTimeout is after how long without a heartbeat the broker gives the
	// partitions of a member to others. Zero means 10 seconds. With ProtocolConsumer
	// the broker decides, by group.consumer.session.timeout.ms.
	SessionTimeout time.Duration

	// RebalanceDrain is how long a partition that moves to another member waits for
	// the handlers that run. Zero means 10 seconds.
	RebalanceDrain time.Duration

	// CommitInterval is how often offsets are committed. Zero means 1 second.
	CommitInterval time.Duration

	// CommitDistance bounds, per partition, how many messages may have been started
	// from the oldest unsettled one on: so many may come again after a crash, beside
	// those settled since the last commit. Zero means 1000.
	CommitDistance int

	// RedeliveryDelay is the first pause before a nacked message comes again, if its
	// GiveBack names none; it doubles with each delivery, up to one second or itself.
	// Zero means 10 ms.
	RedeliveryDelay time.Duration

	// WaitForTopic is how long Subscribe waits for a topic that does not exist, before
	// it returns an error. Zero: not at all.
	WaitForTopic time.Duration

	// ProducerTime takes the timestamps of producers for Delivery.Time. Otherwise only
	// timestamps that the broker has set count (message.timestamp.type=LogAppendTime).
	ProducerTime bool

	// Unmarshal, if not nil, replaces the wire format for reading. Its error, or panic, becomes
	// Delivery.Undecodable; the message is then the record as the wire format reads it.
	// It is called for each delivery and must not keep or change the record.
	Unmarshal func(*kgo.Record) (*message.Message, error)
}

// Partitioner chooses the partition of a message with a key. Those without one go to a
// partition of the client's choice, the same one for a whole batch.
type Partitioner string

const (
	PartitionerMurmur2 Partitioner = "murmur2" // as Kafka's own clients
	PartitionerSarama  Partitioner = "sarama"  // as sarama, and so watermill-kafka
)

// Publish configures publishers.
type Publish struct {
	// Key returns the key of a message; nil for none. KeyMetadata is then ignored.
	Key func(topic string, msg *message.Message) []byte

	// KeyMetadata names the metadata field whose value is the key. A message without
	// the field has no key.
	KeyMetadata string

	Partitioner Partitioner // PartitionerMurmur2 if ""

	// MaxBytes is the largest message, and the largest batch, that is sent. Zero means
	// 1,000,012, the default of message.max.bytes.
	MaxBytes int

	// Timeout bounds Publish while the broker does not answer; the first message to a
	// topic, about which the broker is asked before, may take twice as long. Zero means
	// 30 seconds.
	Timeout time.Duration

	// CreateTopics makes topics that do not exist when they are published or
	// subscribed to, with Partitions and Replication.
	CreateTopics bool
	// Partitions of new topics. Zero means the broker's default.
	Partitions int
	// Replication of new topics. Zero means the broker's default.
	Replication int
}

const pkg = "kafka"

func (c *Config) setDefaults() {
	c.Brokers = cluster.WithPorts(c.Brokers)
	cluster.OrDefault(&c.ConnectTimeout, 10*time.Second)
	cluster.OrDefault(&c.ClientID, "millpond")
	cluster.OrDefault(&c.Consume.InFlightPerPartition, 1)
	cluster.OrDefault(&c.Consume.Protocol, ProtocolClassic)
	cluster.OrDefault(&c.Consume.SessionTimeout, 10*time.Second)
	cluster.OrDefault(&c.Consume.RebalanceDrain, 10*time.Second)
	cluster.OrDefault(&c.Consume.CommitInterval, time.Second)
	cluster.OrDefault(&c.Consume.CommitDistance, 1000)
	cluster.OrDefault(&c.Consume.RedeliveryDelay, 10*time.Millisecond)
	cluster.OrDefault(&c.Publish.Partitioner, PartitionerMurmur2)
	cluster.OrDefault(&c.Publish.MaxBytes, 1_000_012)
	cluster.OrDefault(&c.Publish.Timeout, 30*time.Second)
}

// access is what the configuration says about reaching the cluster.
func (c *Config) access() *cluster.Access {
	return &cluster.Access{
		Package: pkg, Brokers: c.Brokers, TLS: c.TLS, SASL: string(c.SASL), Username: c.Username, Password: c.Password, ConnectTimeout: c.ConnectTimeout,
	}
}

// validate names every invalid field and what to write instead.
func (c *Config) validate() error {
	check := &cluster.Check{Package: pkg}
	wrong := check.Wrong
	check.Access(*c.access())
	cluster.NotNegative(check, map[string]int{
		"Consume.InFlightPerPartition": c.Consume.InFlightPerPartition, "Consume.CommitDistance": c.Consume.CommitDistance,
		"Publish.MaxBytes": c.Publish.MaxBytes, "Publish.Partitions": c.Publish.Partitions, "Publish.Replication": c.Publish.Replication,
	})
	cluster.NotNegative(check, map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "Consume.SessionTimeout": c.Consume.SessionTimeout, "Consume.RebalanceDrain": c.Consume.RebalanceDrain,
		"Consume.CommitInterval": c.Consume.CommitInterval, "Consume.RedeliveryDelay": c.Consume.RedeliveryDelay,
		"Consume.WaitForTopic": c.Consume.WaitForTopic, "Publish.Timeout": c.Publish.Timeout,
	})
	if n := c.Publish.Partitions; n > math.MaxInt32 {
		wrong("Publish.Partitions", n, "use a smaller number")
	}
	if n := c.Publish.Replication; n > math.MaxInt16 {
		wrong("Publish.Replication", n, "use a number of brokers")
	}
	if n := c.Publish.MaxBytes; n > 0 && n < smallestBatch || n > largestBatch {
		wrong("Publish.MaxBytes", n, fmt.Sprintf("use a number from %d to %d", smallestBatch, largestBatch))
	}
	if !slices.Contains([]Order{"", OrderPartition, OrderKey, OrderNone}, c.Consume.Order) {
		wrong("Consume.Order", fmt.Sprintf("%q", c.Consume.Order), "use partition, key or none")
	}
	if n := c.Consume.InFlightPerPartition; n > 1 && c.Consume.Order == OrderPartition {
		wrong("Consume.Order", OrderPartition, fmt.Sprintf("with %d in flight per partition the order of a partition cannot be kept: use key or none, or 1 in flight", n))
	}
	if !slices.Contains([]Protocol{"", ProtocolClassic, ProtocolConsumer}, c.Consume.Protocol) {
		wrong("Consume.Protocol", fmt.Sprintf("%q", c.Consume.Protocol), "use classic or consumer")
	}
	if !slices.Contains([]Partitioner{"", PartitionerMurmur2, PartitionerSarama}, c.Publish.Partitioner) {
		wrong("Publish.Partitioner", fmt.Sprintf("%q", c.Publish.Partitioner), "use murmur2 or sarama")
	}
	return check.Err()
}
