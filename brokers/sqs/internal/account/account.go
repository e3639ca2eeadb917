// Package account is what package official asks a broker of package sqs, so that both find
// credentials, queues and topics in the same way, read the same facts of a message and say
// the same of an error.
package account

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
)

// Account is SQS and SNS as one configuration reaches them.
type Account interface {
	// AWS returns region, credentials and HTTP client.
	AWS() aws.Config

	// Source finds the queue that a group reads for a topic. Where that is configured it
	// makes what is missing.
	Source(ctx context.Context, topic, group string) (Queue, error)

	// Read notes that a group reads a queue, until unread is called.
	Read(q Queue, group string) (unread func(), err error)

	// Destination finds the queue, or the SNS topic, that a topic is published to. Where
	// that is configured it makes what is missing.
	Destination(ctx context.Context, topic string) (Destination, error)

	// Decode reads a message, and says what is known about this delivery of it.
	Decode(topic string, q Queue, m *types.Message) (*message.Message, brokers.Delivery)

	// Explain adds to an error of a request what to do, and the sentinel that callers
	// test for. action is the IAM action that the request needs.
	Explain(action string, err error) error
}

// Queue is a queue as it was found.
type Queue struct {
	Name, URL string
	FIFO      bool
	Found     any // what package sqs knows of it
}

// Destination is a queue or an SNS topic.
type Destination struct {
	URL    string // of the queue; "" for a topic
	ARN    string // of the topic; "" for a queue
	Encode func(*message.Message) (Outgoing, error)
	Lost   func() // notes that it is gone, so that it is looked for again
}

// Outgoing is a message as it is sent.
type Outgoing struct {
	Body                 string
	Attributes           map[string]wire.Attribute
	Group, Deduplication string // for FIFO queues and topics, else ""
}

// Of returns the account of a broker. Package sqs sets it.
var Of func(b brokers.Broker) Account
