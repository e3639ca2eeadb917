package official

import (
	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// mechanism returns sarama's name of the mechanism, and what it needs for SCRAM.
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

// scramClient is one conversation.
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
