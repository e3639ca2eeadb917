package official

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"github.com/millpond-go/millpond/brokers"
)

// The environment variables with the credentials for SASL.
const (
	UsernameVariable = "MILLPOND_KAFKA_USERNAME"
	PasswordVariable = "MILLPOND_KAFKA_PASSWORD" // #nosec G101 -- a name
)

func (c *Config) readCredentials() error {
	if c.SASL == "" || c.Username != "" {
		return nil
	}
	c.Username, c.Password = os.Getenv(UsernameVariable), os.Getenv(PasswordVariable)
	if c.Username == "" {
		return fmt.Errorf("kafka/official: SASL mechanism %q needs credentials: set %s and %s", c.SASL, UsernameVariable, PasswordVariable)
	}
	return nil
}

// sarama returns the settings that all clients share.
func (c *Config) sarama() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = c.ClientID
	config.Version = sarama.V2_8_0_0
	config.Net.DialTimeout = c.ConnectTimeout
	config.Metadata.AllowAutoTopicCreation = false // a missing topic is said, not made
	config.Metadata.RefreshFrequency = time.Minute
	if c.TLS != nil {
		config.Net.TLS.Enable = true
		config.Net.TLS.Config = c.TLS.Clone()
	}
	if c.SASL != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = c.Username, c.Password
		config.Net.SASL.Mechanism, config.Net.SASL.SCRAMClientGeneratorFunc = c.SASL.mechanism()
	}
	return config
}

// adjusted lets the program have the last word.
func (c *Config) adjusted(config *sarama.Config) *sarama.Config {
	if c.Sarama != nil {
		c.Sarama(config)
	}
	return config
}

func (c *Config) consuming() *sarama.Config {
	config := c.sarama()
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if c.Consume.StartAtNewest {
		config.Consumer.Offsets.Initial = sarama.OffsetNewest
	}
	config.Consumer.Offsets.AutoCommit.Interval = c.Consume.CommitInterval
	config.Consumer.Group.Session.Timeout = c.Consume.SessionTimeout
	config.Consumer.Group.Heartbeat.Interval = min(c.Consume.SessionTimeout/3, time.Second)
	config.Consumer.Group.Rebalance.Timeout = rebalanceTimeout
	return config
}

func (c *Config) producing() *sarama.Config {
	config := c.sarama()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll // watermill-kafka's default is the leader's ack
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1 // what sarama asks for idempotence
	config.Producer.Retry.Max = 10
	config.Producer.MaxMessageBytes = c.Publish.MaxBytes
	return config
}

// connect opens a client and returns when a broker has answered.
func (c *Config) connect(ctx context.Context) (sarama.Client, error) {
	config := c.sarama()
	config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 3, 100*time.Millisecond // what is wrong is to be said soon
	config = c.adjusted(config)
	ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	type result struct {
		client sarama.Client
		err    error
	}
	connected := make(chan result, 1)
	go func() {
		client, err := sarama.NewClient(c.Brokers, config)
		connected <- result{client, err}
	}()
	select {
	case r := <-connected:
		if r.err != nil {
			return nil, c.unreachable(r.err)
		}
		return r.client, nil
	case <-ctx.Done():
		go func() {
			if r := <-connected; r.err == nil {
				_ = r.client.Close()
			}
		}()
		return nil, c.unreachable(context.Cause(ctx))
	}
}

// unreachable turns the client's error into one that says what to look at. It names
// addresses and mechanisms, never credentials.
func (c *Config) unreachable(err error) error {
	return fmt.Errorf("kafka/official: %s: %w: %w: %s", strings.Join(c.Brokers, ","), brokers.ErrUnavailable, err, c.advice(err))
}

func (c *Config) advice(err error) string {
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		unknownCA x509.UnknownAuthorityError
		hostname  x509.HostnameError
		network   *net.OpError
	)
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed), errors.Is(err, sarama.ErrIllegalSASLState):
		return fmt.Sprintf("the broker refuses the credentials of user %q with SASL mechanism %q: check %s and %s, and the mechanism", c.Username, c.SASL, UsernameVariable, PasswordVariable)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return fmt.Sprintf("the broker does not offer SASL mechanism %q: choose another with the parameter sasl", c.SASL)
	case errors.As(err, &dns):
		return "the name cannot be resolved: check the host"
	case errors.As(err, &unknownCA):
		return "the broker's certificate is of an authority that is not trusted: name it with the parameter tls_ca"
	case errors.As(err, &hostname):
		return "the broker's certificate is for another name: use that name, or the parameter tls_server_name"
	case errors.As(err, &record):
		return "the broker does not speak TLS on this port: remove tls=true or use its TLS port"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer within " + c.ConnectTimeout.String() + ": check host and port, firewalls, and whether the port wants TLS"
	case errors.As(err, &network) && network.Op == "dial":
		return "nothing listens there: check host and port, and that the broker runs"
	case errors.Is(err, io.EOF):
		return "the broker closed the connection: it may want, or not want, TLS or SASL on this port: check the parameters tls and sasl"
	case c.SASL != "": // sarama keeps the cause to itself
		return fmt.Sprintf("check host and port, the parameter tls, that the port takes SASL mechanism %q, and %s and %s", c.SASL, UsernameVariable, PasswordVariable)
	default:
		return "check host and port, and the parameters tls and sasl"
	}
}
