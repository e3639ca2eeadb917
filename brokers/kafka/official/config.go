package official

import (
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

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

	// Sarama, if not nil, has the last word on the configuration of every client: what
	// a program has set for watermill-kafka as OverwriteSaramaConfig can be set here,
	// such as Kerberos or a proxy. It is called once for each client. Settings that
	// change offsets, acks or what is returned break promises.
	Sarama func(*sarama.Config)

	// Tracer, if not nil, is watermill-kafka's.
	Tracer wmkafka.SaramaTracer

	Consume Consume
	Publish Publish

	password func() string // Password, where no print of a Broker shows it
}

// SASL names a SASL mechanism.
type SASL string

// The mechanisms that need no more than a name and a password.
const (
	SASLPlain       SASL = cluster.SASLPlain
	SASLScramSHA256 SASL = cluster.SASLScramSHA256
	SASLScramSHA512 SASL = cluster.SASLScramSHA512
)

// Consume configures subscribers.
type Consume struct {
	// StartAtNewest lets a group without offsets begin with what is published from now
	// on, which is watermill-kafka's own default. Otherwise it begins with the oldest
	// message that the topic has.
	StartAtNewest bool

	// SessionTimeout is after how long without a heartbeat the broker gives the
	// partitions of a member to others. Zero means 10 seconds.
	SessionTimeout time.Duration

	// RebalanceDrain is how long a rebalance waits for the handlers that run. Those
	// that take longer are run again, maybe beside. Zero means 10 seconds; it must be
	// less than the group's rebalance timeout, which is 60 seconds.
	RebalanceDrain time.Duration

	// CommitInterval is how often offsets are committed. Zero means 1 second.
	CommitInterval time.Duration

	// RedeliveryDelay is the pause before a nacked message comes again if its GiveBack
	// names none. Zero means 100 ms.
	RedeliveryDelay time.Duration

	// WaitForTopic is how long Subscribe waits for a topic that does not exist, before
	// it returns an error. Zero: not at all.
	WaitForTopic time.Duration

	// ProducerTime takes the timestamps of records for Delivery.Time. Sarama does not
	// say whether the broker or the producer has set one, so otherwise there is none.
	ProducerTime bool

	// Unmarshaler, if not nil, replaces the wire format for reading. Its error, or panic, becomes
	// Delivery.Undecodable; the message is then the record as the wire format reads it.
	Unmarshaler wmkafka.Unmarshaler
}

// Publish configures publishers.
type Publish struct {
	// Key returns the key of a message; nil for none. KeyMetadata is then ignored.
	Key func(topic string, msg *message.Message) []byte

	// KeyMetadata names the metadata field whose value is the key. A message without
	// the field has no key.
	KeyMetadata string

	// MaxBytes is the largest message that is sent. Zero means 1,000,012, the default
	// of message.max.bytes.
	MaxBytes int

	// CreateTopics makes topics that do not exist when they are published or
	// subscribed to, with Partitions and Replication.
	CreateTopics bool
	// Partitions of new topics. Zero means the broker's default.
	Partitions int
	// Replication of new topics. Zero means the broker's default.
	Replication int
}

const (
	pkg              = "kafka/official"
	rebalanceTimeout = time.Minute
)

func (c *Config) setDefaults() {
	c.Brokers = cluster.WithPorts(c.Brokers)
	cluster.OrDefault(&c.ConnectTimeout, 10*time.Second)
	cluster.OrDefault(&c.ClientID, "millpond")
	cluster.OrDefault(&c.Consume.SessionTimeout, 10*time.Second)
	cluster.OrDefault(&c.Consume.RebalanceDrain, 10*time.Second)
	cluster.OrDefault(&c.Consume.CommitInterval, time.Second)
	cluster.OrDefault(&c.Consume.RedeliveryDelay, 100*time.Millisecond)
	cluster.OrDefault(&c.Publish.MaxBytes, 1_000_012)
}

// access is what the configuration says about reaching the cluster.
func (c *Config) access() cluster.Access {
	return cluster.Access{
		Package: pkg, Brokers: c.Brokers, TLS: c.TLS, SASL: string(c.SASL), Username: c.Username, Password: c.Password, ConnectTimeout: c.ConnectTimeout,
	}
}

// String leaves the password out.
func (c Config) String() string {
	return fmt.Sprintf("%s://%s (TLS %t, SASL %q, user %q, client %q, %+v, %+v)",
		Scheme, strings.Join(c.Brokers, ","), c.TLS != nil, c.SASL, c.Username, c.ClientID, c.Consume, c.Publish)
}

// GoString is String, for %#v.
func (c Config) GoString() string { return c.String() }

// validate names every invalid field and what to write instead.
func (c *Config) validate() error {
	check := &cluster.Check{Package: pkg}
	check.Access(c.access())
	cluster.NotNegative(check, map[string]int{
		"Publish.MaxBytes": c.Publish.MaxBytes, "Publish.Partitions": c.Publish.Partitions, "Publish.Replication": c.Publish.Replication,
	})
	cluster.NotNegative(check, map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "Consume.SessionTimeout": c.Consume.SessionTimeout, "Consume.RebalanceDrain": c.Consume.RebalanceDrain,
		"Consume.CommitInterval": c.Consume.CommitInterval, "Consume.RedeliveryDelay": c.Consume.RedeliveryDelay, "Consume.WaitForTopic": c.Consume.WaitForTopic,
	})
	if c.Consume.RebalanceDrain >= rebalanceTimeout {
		check.Wrong("Consume.RebalanceDrain", c.Consume.RebalanceDrain, "use less than the rebalance timeout of "+rebalanceTimeout.String()+", after which the group goes on without this member")
	}
	return check.Err()
}
