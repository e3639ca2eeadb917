package official

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

// The environment variables with the credentials for SASL.
const (
	UsernameVariable = cluster.UsernameVariable
	PasswordVariable = cluster.PasswordVariable
)

func (c *Config) authenticate() error {
	access := c.access()
	username, password, err := access.Credentials()
	c.Username, c.Password, c.password = username, "", func() string { return password }
	return err
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
		config.Net.SASL.User, config.Net.SASL.Password = c.Username, c.password()
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
	config.Consumer.IsolationLevel = sarama.ReadCommitted // by default what was aborted comes as well
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

// unreachable says why the cluster cannot be used, and what to look at.
func (c *Config) unreachable(err error) error {
	access := c.access()
	return access.Unreachable(err, fault(err))
}

func fault(err error) cluster.Fault {
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return cluster.BadCredentials
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return cluster.NoMechanism
	case errors.Is(err, sarama.ErrIllegalSASLState):
		return cluster.UnwantedSASL
	default:
		return cluster.Other
	}
}
