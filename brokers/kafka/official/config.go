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
	// Brokers are the addresses, host:port, of some brokers of the cluster. The default port is
	// 9092.
	Brokers []string

	// TLS, if not nil, encrypts all connections. It is cloned.
	TLS *tls.Config

	// SASL chooses how to authenticate; "" means not at all.
	SASL SASL `config:"sasl" check:"plain|scram-sha-256|scram-sha-512"`
	// Username and Password are the credentials for SASL. If Username is empty, both
	// come from MILLPOND_KAFKA_USERNAME and MILLPOND_KAFKA_PASSWORD.
	Username, Password string

	// ConnectTimeout bounds New, and each request that Subscribe makes before it returns.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// ClientID names the program in the broker's logs and quotas.
	ClientID string `config:"client_id" default:"millpond"`

	// Sarama, if not nil, may change every client's configuration: it can make the settings that a
	// program has in watermill-kafka's OverwriteSaramaConfig, such as Kerberos or a proxy. It is
	// called once for each client. Changes of offsets, acks or returned channels break promises.
	Sarama func(*sarama.Config)

	// Tracer, if not nil, is watermill-kafka's.
	Tracer wmkafka.SaramaTracer

	Consume Consume `config:""`
	Publish Publish `config:""`

	password func() string // Password; a function, so that printing a Broker does not show it
}

// SASL names a SASL mechanism.
type SASL string

// The mechanisms that need only a name and a password.
const (
	SASLPlain       SASL = cluster.SASLPlain
	SASLScramSHA256 SASL = cluster.SASLScramSHA256
	SASLScramSHA512 SASL = cluster.SASLScramSHA512
)

// Consume configures subscribers.
type Consume struct {
	// StartAtNewest makes a group without offsets begin with messages published from now on, which
	// is watermill-kafka's own default. Otherwise it begins with the topic's oldest message. Until
	// the group has committed an offset, a member that begins again begins at a later end.
	StartAtNewest bool `config:"offset" check:"oldest|newest"`

	// SessionTimeout is how long a member may send no heartbeat before the broker gives its
	// partitions to others.
	SessionTimeout time.Duration `config:"session_timeout" default:"10s" check:"positive"`

	// RedeliveryDelay is the pause before a nacked message is redelivered if its GiveBack sets
	// none.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"100ms" check:"positive"`

	// ProducerTime uses records' timestamps for Delivery.Time. Sarama does not tell whether the
	// broker or the producer set one, so otherwise there is none.
	ProducerTime bool `config:"time" check:"broker|producer"`

	// Unmarshaler, if not nil, replaces the wire format for reading. If it returns an error or
	// panics, that becomes Delivery.Undecodable, and the message is read in the wire format.
	Unmarshaler wmkafka.Unmarshaler
}

// Publish configures publishers.
type Publish struct {
	// Key returns a message's key, or nil for none. If it is set, KeyMetadata is ignored.
	Key func(topic string, msg *message.Message) []byte

	// KeyMetadata names the metadata field whose value is the key. A message without
	// the field has no key.
	KeyMetadata string `config:"key_metadata"`

	// MaxBytes is the largest message that is sent, in bytes. The default is that of
	// message.max.bytes.
	MaxBytes int `config:"max_message_bytes" default:"1000012" check:"positive"`

	// CreateTopics creates missing topics that are subscribed to, with Partitions and Replication.
	// Topics that are published to may be created by the broker, if it is configured so.
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

// access returns the settings for reaching the cluster.
func (c *Config) access() cluster.Access {
	return cluster.Access{
		Package: pkg, Brokers: c.Brokers, TLS: c.TLS, SASL: string(c.SASL), Username: c.Username, Password: c.Password, ConnectTimeout: c.ConnectTimeout,
	}
}

// Format prints the configuration without the password, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) {
	fmt.Fprintf(f, "%s://%s (TLS %t, SASL %q, user %q, client %q, %+v, %+v)",
		Scheme, strings.Join(c.Brokers, ","), c.TLS != nil, c.SASL, c.Username, c.ClientID, c.Consume, c.Publish)
}

// validate returns an error that names every invalid field and what to write instead.
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

// Open connects to the cluster that a URL names. The package documentation lists the parameters.
// One error lists everything that is wrong with the URL, without user info and without values that
// may be secret. It is a brokers.Opener, for programs with a mux of their own.
func Open(ctx context.Context, u *url.URL) (brokers.Broker, error) {
	return urlmux.Open[brokers.Broker](ctx, u, ParseURL, New)
}

// ParseURL returns a URL's configuration, so that a program can change it before it calls [New].
// Its errors are those of [Open] before it connects.
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
