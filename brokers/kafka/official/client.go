package official

import (
	"errors"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/millpond-go/millpond/brokers/kafka/internal/cluster"
)

func (c *Config) authenticate() error {
	access := c.access()
	username, password, err := access.Credentials()
	c.Username, c.Password, c.password = username, "", func() string { return password }
	return err
}

// sarama returns a client's settings: the common ones, its own, and the program's.
func (c *Config) sarama(besides ...func(*sarama.Config)) *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = c.ClientID
	config.Version = sarama.V2_8_0_0
	config.Net.DialTimeout = c.ConnectTimeout
	config.Metadata.AllowAutoTopicCreation = c.Publish.CreateTopics
	if c.TLS != nil {
		config.Net.TLS.Enable, config.Net.TLS.Config = true, c.TLS.Clone()
	}
	if c.SASL != "" {
		config.Net.SASL.Enable = true
		config.Net.SASL.User, config.Net.SASL.Password = c.Username, c.password()
		config.Net.SASL.Mechanism, config.Net.SASL.SCRAMClientGeneratorFunc = c.SASL.mechanism()
	}
	for _, set := range besides {
		set(config)
	}
	if c.Sarama != nil {
		c.Sarama(config)
	}
	return config
}

func (c *Config) consuming() *sarama.Config {
	return c.sarama(func(config *sarama.Config) {
		config.Consumer.Return.Errors = true
		config.Consumer.IsolationLevel = sarama.ReadCommitted // by default it also delivers aborted messages
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		if c.Consume.StartAtNewest {
			config.Consumer.Offsets.Initial = sarama.OffsetNewest
		}
		config.Consumer.Group.Session.Timeout = c.Consume.SessionTimeout
		config.Consumer.Group.Heartbeat.Interval = c.Consume.SessionTimeout / 4
	})
}

func (c *Config) producing() *sarama.Config {
	return c.sarama(func(config *sarama.Config) {
		config.Producer.Return.Successes = true
		config.Producer.RequiredAcks = sarama.WaitForAll // watermill-kafka's default waits only for the leader
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1 // sarama requires this for idempotence
		config.Producer.Retry.Max = 10
		config.Producer.MaxMessageBytes = c.Publish.MaxBytes
	})
}

// unreachable says why the cluster cannot be used, and what to check.
func (c *Config) unreachable(err error) error {
	fault := cluster.Other
	for is, of := range map[error]cluster.Fault{
		sarama.ErrSASLAuthenticationFailed: cluster.BadCredentials, sarama.ErrUnsupportedSASLMechanism: cluster.NoMechanism, sarama.ErrIllegalSASLState: cluster.UnwantedSASL,
	} {
		if errors.Is(err, is) {
			fault = of
		}
	}
	access := c.access()
	return access.Unreachable(err, fault)
}

// mechanism returns sarama's name of the mechanism, and its client for SCRAM.
func (s SASL) mechanism() (sarama.SASLMechanism, func() sarama.SCRAMClient) {
	switch s {
	case SASLScramSHA256:
		return sarama.SASLTypeSCRAMSHA256, func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case SASLScramSHA512:
		return sarama.SASLTypeSCRAMSHA512, func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	case SASLPlain:
	}
	return sarama.SASLTypePlaintext, nil
}

// scramClient is one SCRAM conversation.
type scramClient struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
