package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/millpond-go/millpond/brokers"
)

// The environment variables with the credentials for SASL.
const (
	UsernameVariable = "MILLPOND_KAFKA_USERNAME"
	PasswordVariable = "MILLPOND_KAFKA_PASSWORD" //nolint:gosec // a name
)

// authenticate chooses the mechanism. The password is kept by that alone, where no print
// of a Broker shows it.
func (c *Config) authenticate() error {
	if c.SASL == "" {
		return nil
	}
	if c.Username == "" {
		c.Username, c.Password = os.Getenv(UsernameVariable), os.Getenv(PasswordVariable)
	}
	if c.Username == "" {
		return fmt.Errorf("kafka: SASL mechanism %q needs credentials: set %s and %s", c.SASL, UsernameVariable, PasswordVariable)
	}
	switch c.SASL {
	case SASLPlain:
		c.mechanism = plain.Auth{User: c.Username, Pass: c.Password}.AsMechanism()
	case SASLScramSHA256:
		c.mechanism = scram.Auth{User: c.Username, Pass: c.Password}.AsSha256Mechanism()
	case SASLScramSHA512:
		c.mechanism = scram.Auth{User: c.Username, Pass: c.Password}.AsSha512Mechanism()
	}
	c.Password = ""
	return nil
}

// String leaves the password out.
func (c Config) String() string {
	return fmt.Sprintf("kafka://%s (TLS %t, SASL %q, user %q, client %q, %+v, %+v)",
		strings.Join(c.Brokers, ","), c.TLS != nil, c.SASL, c.Username, c.ClientID, c.Consume, c.Publish)
}

// GoString is String, for %#v.
func (c Config) GoString() string { return c.String() }

// client opens a client; it does not connect yet.
func (c *Config) client(logger watermill.LoggerAdapter, options ...kgo.Opt) (*kgo.Client, error) {
	all := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.WithLogger(clientLogger{logger}),
		kgo.DialTimeout(c.ConnectTimeout),
		// A topic that is new or has new partitions is seen soon, at little cost.
		kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.MetadataMaxAge(10 * time.Second),
	}
	if c.TLS != nil {
		all = append(all, kgo.DialTLSConfig(c.TLS.Clone()))
	}
	if c.mechanism != nil {
		all = append(all, kgo.SASL(c.mechanism))
	}
	client, err := kgo.NewClient(append(append(all, options...), c.Options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka: invalid options: %w", err)
	}
	return client, nil
}

// producing are the options of the publishers' client. Idempotent writes with acks from
// all replicas in sync are the client's default.
func (b *Broker) producing() []kgo.Opt {
	c := &b.config
	options := []kgo.Opt{
		// Publish waits for its messages, which are a batch as they come.
		kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(c.Publish.Timeout),
		kgo.ProducerBatchMaxBytesFn(b.maxBytes),
	}
	if c.Publish.Partitioner == PartitionerSarama {
		options = append(options, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(kgo.SaramaCompatHasher(fnv32a))))
	}
	return options
}

func fnv32a(key []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(key) // never fails
	return h.Sum32()
}

// unreachable turns the client's error into one that says what to look at. It names
// addresses and mechanisms, never credentials.
func (c *Config) unreachable(err error) error {
	return fmt.Errorf("kafka: %s: %w: %w: %s", strings.Join(c.Brokers, ","), brokers.ErrUnavailable, err, c.advice(err))
}

func (c *Config) advice(err error) string {
	var (
		firstRead *kgo.ErrFirstReadEOF
		dns       *net.DNSError
		record    tls.RecordHeaderError
		unknownCA x509.UnknownAuthorityError
		hostname  x509.HostnameError
		network   *net.OpError
	)
	switch {
	case errors.Is(err, kerr.IllegalSaslState):
		return "the broker wants no SASL on this port: remove the parameter sasl, or use its port for SASL"
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return fmt.Sprintf("the broker refuses the credentials of user %q with SASL mechanism %q: check %s and %s, and the mechanism", c.Username, c.SASL, UsernameVariable, PasswordVariable)
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return fmt.Sprintf("the broker does not offer SASL mechanism %q: choose another with the parameter sasl", c.SASL)
	case errors.As(err, &dns):
		return "the name cannot be resolved: check the host"
	case errors.As(err, &unknownCA):
		return "the broker's certificate is of an authority that is not trusted: name it with the parameter tls_ca"
	case errors.As(err, &hostname):
		return "the broker's certificate is for another name: use that name, or the parameter tls_server_name"
	case errors.As(err, &record):
		return "the broker does not speak TLS on this port: remove tls=true or use its TLS port"
	case errors.As(err, &firstRead) && c.TLS != nil && c.SASL == "":
		return "the broker closed the connection: it may not speak TLS on this port, or want SASL: check the parameters tls and sasl"
	case errors.As(err, &firstRead):
		return "the broker closed the connection: it may want TLS or SASL on this port: check the parameters tls and sasl"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + c.ConnectTimeout.String() + ": check host and port, firewalls, and whether the port wants TLS"
	case errors.As(err, &network) && network.Op == "dial":
		return "nothing listens there: check host and port, and that the broker runs"
	default:
		return "check host and port, and the parameters tls and sasl"
	}
}
