package kafka

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

// The environment variables with the credentials for SASL.
const (
	UsernameVariable = cluster.UsernameVariable
	PasswordVariable = cluster.PasswordVariable
)

// authenticate chooses the mechanism. Only the mechanism keeps the password, so that printing a
// Broker does not show it.
func (c *Config) authenticate() error {
	var err error
	if c.Username, c.Password, err = c.access().Credentials(); err != nil {
		return err
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

// String returns the configuration without the password.
func (c Config) String() string {
	return fmt.Sprintf("kafka://%s (TLS %t, SASL %q, user %q, client %q, %+v, %+v)",
		strings.Join(c.Brokers, ","), c.TLS != nil, c.SASL, c.Username, c.ClientID, c.Consume, c.Publish)
}

// Format prints String, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// client opens a client without connecting.
func (c *Config) client(logger watermill.LoggerAdapter, options ...kgo.Opt) (*kgo.Client, error) {
	all := []kgo.Opt{
		kgo.SeedBrokers(c.Brokers...),
		kgo.ClientID(c.ClientID),
		kgo.WithLogger(clientLogger{logger}),
		kgo.DialTimeout(c.ConnectTimeout),
		// Notices new topics and partitions soon, at little cost.
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

// askPause is the pause before a request to the cluster is repeated.
const askPause = 500 * time.Millisecond

// asking returns the options of the client that reads and creates topics. Its retries are bounded
// by ConnectTimeout, not by a number. The default's growing pauses would miss the moments in which
// a cluster has a controller.
func (c *Config) asking() []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryBackoffFn(func(int) time.Duration { return askPause }),
		kgo.RequestRetries(math.MaxInt32),
	}
}

// producing returns the options of the publishers' client. Idempotent writes, with acks from all
// in-sync replicas, are the client's default.
func (b *Broker) producing() []kgo.Opt {
	c := &b.config
	options := []kgo.Opt{
		// Publish waits for its messages, which already form a batch.
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

// unreachable says why the cluster cannot be used, and what to check.
func (c *Config) unreachable(err error) error {
	return c.access().Unreachable(err, fault(err))
}

func fault(err error) cluster.Fault {
	_, hungUp := errors.AsType[*kgo.ErrFirstReadEOF](err)
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return cluster.BadCredentials
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return cluster.NoMechanism
	case errors.Is(err, kerr.IllegalSaslState):
		return cluster.UnwantedSASL
	case hungUp:
		return cluster.HungUp
	default:
		return cluster.Other
	}
}
