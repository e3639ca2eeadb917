// Package account gives package official access to a broker of package sqs. So both find
// credentials, queues and topics, read the facts of a message, and explain errors in the same way.
package account

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
)

// Account is SQS and SNS with one configuration.
type Account interface {
	// AWS returns region, credentials and HTTP client.
	AWS() aws.Config

	// Source finds a group's queue for a topic. It creates missing objects if that is configured.
	Source(ctx context.Context, topic, group string) (Queue, error)

	// Read notes that a group reads a queue, until unread is called.
	Read(q Queue, group string) (unread func(), err error)

	// Destination finds the queue, or the SNS topic, for publishing to a topic. It creates missing
	// objects if that is configured.
	Destination(ctx context.Context, topic string) (Destination, error)

	// Decode returns a message, and the facts of this delivery of it.
	Decode(topic string, q Queue, m *types.Message) (*message.Message, brokers.Delivery)

	// Explain adds a fix and a sentinel to a request's error. action is the IAM action that the
	// request needs.
	Explain(action string, err error) error
}

// Queue is a queue that was looked up.
type Queue struct {
	Name, URL string
	FIFO      bool
	Found     any // package sqs's own data
}

// Destination is a queue or an SNS topic.
type Destination struct {
	URL    string // of the queue; "" for a topic
	ARN    string // of the topic; "" for a queue
	Encode func(*message.Message) (Outgoing, error)
	Lost   func() // notes that it is gone, so that it is looked up again
}

// Outgoing is a message in its form for sending.
type Outgoing struct {
	Body                 string
	Attributes           map[string]wire.Attribute
	Group, Deduplication string // for FIFO queues and topics; otherwise ""
}

// Of returns the account of a broker. Package sqs sets it.
var Of func(b brokers.Broker) Account
