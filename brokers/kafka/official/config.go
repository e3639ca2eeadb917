package official

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/urlmux"
	"github.com/millpond-go/millpond/internal/urlquery"
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
	SASL SASL `config:"sasl" check:"plain|scram-sha-256|scram-sha-512"`
	// Username and Password are the credentials for SASL. If Username is empty, both
	// come from MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD.
	Username, Password string

	// ConnectTimeout bounds New, and each question that Subscribe asks before it
	// returns.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// ClientID names the program in the broker's logs and quotas.
	ClientID string `config:"client_id" default:"millpond"`

	// Sarama, if not nil, has the last word on the configuration of every client: what
	// a program has set for watermill-kafka as OverwriteSaramaConfig can be set here,
	// such as Kerberos or a proxy. It is called once for each client. Settings that
	// change offsets, acks or what is returned break promises.
	Sarama func(*sarama.Config)

	// Tracer, if not nil, is watermill-kafka's.
	Tracer wmkafka.SaramaTracer

	Consume Consume `config:""`
	Publish Publish `config:""`

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
	// message that the topic has. Until the group has committed an offset, a member that
	// begins once more begins at a later end.
	StartAtNewest bool `config:"offset" check:"oldest|newest"`

	// SessionTimeout is after how long without a heartbeat the broker gives the
	// partitions of a member to others.
	SessionTimeout time.Duration `config:"session_timeout" default:"10s" check:"positive"`

	// RedeliveryDelay is the pause before a nacked message comes again if its GiveBack
	// names none.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"100ms" check:"positive"`

	// ProducerTime takes the timestamps of records for Delivery.Time. Sarama does not
	// say whether the broker or the producer has set one, so otherwise there is none.
	ProducerTime bool `config:"time" check:"broker|producer"`

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
	KeyMetadata string `config:"key_metadata"`

	// MaxBytes is the largest message that is sent; by default that of message.max.bytes.
	MaxBytes int `config:"max_message_bytes" default:"1000012" check:"positive"`

	// CreateTopics makes topics that do not exist when they are subscribed to, with
	// Partitions and Replication, and lets the broker make those that are published to, if
	// it does that.
	CreateTopics bool `config:"create_topics"`
	// Partitions of new topics. Zero means the broker's default.
	Partitions int `config:"partitions" check:"1..2147483647"`
	// Replication of new topics. Zero means the broker's default.
	Replication int `config:"replication" check:"1..32767"`
}

const pkg = "kafka/official"

func (c *Config) setDefaults() {
	c.Brokers = cluster.WithPorts(c.Brokers)
	field.SetDefaults(c)
}

// access is what the configuration says about reaching the cluster.
func (c *Config) access() cluster.Access {
	return cluster.Access{
		Package: pkg, Brokers: c.Brokers, TLS: c.TLS, SASL: string(c.SASL), Username: c.Username, Password: c.Password, ConnectTimeout: c.ConnectTimeout,
	}
}

// Format leaves the password out, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%s://%s (TLS %t, SASL %q, user %q, client %q, %+v, %+v)",
		Scheme, strings.Join(c.Brokers, ","), c.TLS != nil, c.SASL, c.Username, c.ClientID, c.Consume, c.Publish)
}

// validate names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	access := c.access()
	return urlquery.Check(pkg, c, named, access.Check)
}

// Scheme is the URL scheme of this adapter.
const Scheme = "kafka+watermill"

func init() {
	cluster.Register(Scheme, Open, func(u *url.URL) (cluster.Access, error) {
		c, err := ParseURL(u)
		return c.access(), err
	})
}

// Open connects to the cluster that a URL names; the package documentation lists the
// parameters. All mistakes in the URL are returned as one error, which repeats no user
// info and no value that may be a secret. It is a brokers.Opener, for programs with a
// mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	return urlmux.Open[brokers.Broker](ctx, u, ParseURL, New)
}

// ParseURL returns the configuration that a URL stands for, so that a program can add
// to it what a URL cannot say before it calls [New]. Its errors are those of [Open]
// before it connects.
func ParseURL(u *url.URL) (c Config, err error) {
	if err := urlquery.Stray(u); err != nil {
		return c, fmt.Errorf("%s: %w", pkg, err)
	}
	addresses, errs := cluster.ReadURL(pkg, u)
	secured, problems := urlquery.ReadTLS(pkg, u, urlquery.Fields(&c))
	c.Brokers, c.TLS, errs = addresses, secured, append(errs, problems...)
	if len(errs) == 0 {
		errs = append(errs, c.validate(urlquery.InURL(&c)))
	}
	return c, errors.Join(errs...)
}
