package sqs

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/internal/field"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Config configures a [Broker]. The zero value is valid. Each field that a URL can set has
// its parameter in the package documentation.
type Config struct {
	// AWS, if not nil, is used with Region and Endpoint on top. Otherwise the SDK's default chain
	// finds region and credentials.
	AWS *aws.Config

	Region   string `config:"region"`   // empty: that of the field AWS, or what the SDK finds
	Endpoint string `config:"endpoint"` // of an emulator or a VPC endpoint, such as http://127.0.0.1:9324; empty: Amazon's

	// Queues are the queues that Capabilities describes. New looks up each. Others can also be
	// used.
	Queues []string

	// Queue is the pattern for the name of a subscription's queue, with {topic} and {group}, for
	// topics that are neither a URL nor an ARN of a queue. Empty means {topic}, and {topic}-{group}
	// for SNS topics.
	Queue string `config:"queue"`

	// SNS, if not empty, is the prefix of topics' ARNs, such as
	// arn:aws:sns:eu-central-1:123456789012. Topics are then names of SNS topics, and each group
	// has its own queue.
	SNS string `config:"sns"`

	// DeliveryLimit is the maxReceiveCount of all queues that are subscribed to. Subscribe returns
	// an error for a queue that allows fewer receives. Zero: it is read from the queues.
	DeliveryLimit int `config:"delivery_limit" check:"1..1000"`

	// CreateQueues creates missing queues, with Consume.Visibility as their visibility timeout, and
	// SNS topics with their subscriptions. If DeliveryLimit is set, each queue gets a dead-letter
	// queue.
	CreateQueues bool `config:"create_queues"`

	// ConnectTimeout bounds New, and each request that Subscribe makes before it returns.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// SQSOptions and SNSOptions are added last to every client's, so that they take precedence.
	SQSOptions []func(*sqs.Options)
	SNSOptions []func(*sns.Options)

	Consume Consume `config:""`
	Publish Publish `config:""`
}

// Consume configures subscribers.
type Consume struct {
	// Visibility is how long a message stays hidden from others without an extension, in whole
	// seconds. It is extended while the message is unsettled. Zero means the queue's visibility
	// timeout.
	Visibility time.Duration `config:"visibility" check:"positive"`

	// Wait is how long a receive waits for the first message, in whole seconds up to 20. If no
	// message comes, Close takes as long at most.
	Wait time.Duration `config:"wait" default:"5s" check:"positive"`

	// Pollers is how many receives may run at a time. More than one run only under load. Zero means
	// one for ten deliveries in flight.
	Pollers int `config:"pollers" check:"positive"`

	// Linger is how long a request waits to be filled: with deletes, or for a receive with free
	// slots.
	Linger time.Duration `config:"linger" default:"10ms" check:"positive"`

	// RedeliveryDelay is the first pause before a nacked message is redelivered if its GiveBack
	// sets none. It doubles with each delivery, up to the longer of 30 seconds and itself. SQS
	// rounds up to seconds.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"1s" check:"positive"`

	// Unmarshal, if not nil, replaces the wire format for reading. If it returns an error or
	// panics, that becomes Delivery.Undecodable, and the message is read in the wire format. It is
	// called for each delivery, and must not keep or change the message.
	Unmarshal func(*types.Message) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// GroupMetadata names the metadata field with a message's group, within which a FIFO queue or
	// topic keeps the order. The default is watermill-aws's name. Messages without the field form
	// one group.
	GroupMetadata string `config:"group_metadata" default:"MessageGroupId"`

	// DeduplicationMetadata names the metadata field with the deduplication id. Messages without it
	// use the UUID.
	DeduplicationMetadata string `config:"deduplication_metadata" default:"MessageDeduplicationId"`

	// Timeout bounds Publish while the service does not answer, or throttles.
	Timeout time.Duration `config:"publish_timeout" default:"30s" check:"positive"`
}

const pkg = "sqs"

// Limits of SQS.
const (
	longestVisibility = 12 * time.Hour
	longestWait       = 20 * time.Second
	batchSize         = 10 // messages per receive, and entries per batch
)

func (c *Config) setDefaults() {
	field.SetDefaults(c)
	c.SNS = strings.TrimSuffix(c.SNS, ":")
}

// validate returns an error that names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(pkg, c, named, func(wrong urlquery.Wrong) {
		if c.Endpoint != "" { // the error does not quote what may be secret
			if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				wrong("Endpoint", "no address", "write http://host:port or https://host")
			} else if u.User != nil {
				wrong("Endpoint", "an address with a user", "remove it, credentials come from the SDK's provider chain")
			}
		}
		if slices.Contains(c.Queues, "") {
			wrong("Queues", fmt.Sprintf("%q", c.Queues), "write names separated by commas")
		}
		if c.Queue != "" && !strings.Contains(c.Queue, "{topic}") {
			wrong("Queue", fmt.Sprintf("%q", c.Queue), "it must contain {topic}, for example {topic}-{group}")
		}
		if c.SNS != "" && !isTopicARN(c.SNS+":name") {
			wrong("SNS", fmt.Sprintf("%q", c.SNS), "write what stands before the topic's name in its ARN, such as arn:aws:sns:eu-central-1:123456789012")
		}
		if d := c.Consume.Visibility; d%time.Second != 0 || d > longestVisibility {
			wrong("Consume.Visibility", d, "use whole seconds up to 12h")
		}
		if d := c.Consume.Wait; d%time.Second != 0 || d > longestWait {
			wrong("Consume.Wait", d, "use whole seconds up to 20s")
		}
	})
}
