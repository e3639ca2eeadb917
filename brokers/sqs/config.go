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
	// AWS, if not nil, is used as it is, with Region and Endpoint on top. Otherwise the
	// SDK's default chain finds region and credentials.
	AWS *aws.Config

	Region   string `config:"region"`   // empty: that of AWS, or what the SDK finds
	Endpoint string `config:"endpoint"` // of an emulator or a VPC endpoint, such as http://127.0.0.1:9324; empty: AWS's

	// Queues are those that Capabilities speaks of. New looks at each. Others can be used
	// as well.
	Queues []string

	// Queue makes the name of the queue that is subscribed to from {topic} and {group},
	// for topics that are no URL and no ARN of a queue. Empty means {topic}, and
	// {topic}-{group} for SNS topics.
	Queue string `config:"queue"`

	// SNS, if not empty, is what stands before the name in the ARNs of topics, such as
	// arn:aws:sns:eu-central-1:123456789012. Names of topics are then names of SNS
	// topics, and each group has a queue of its own.
	SNS string `config:"sns"`

	// DeliveryLimit is the maxReceiveCount that all queues that are subscribed to are
	// said to have. Subscribe returns an error for one that allows fewer receives. Zero:
	// it is read from the queues.
	DeliveryLimit int `config:"delivery_limit" check:"1..1000"`

	// CreateQueues makes queues that are missing, with Consume.Visibility as their
	// visibility timeout and, if DeliveryLimit is set, a dead-letter queue; and SNS
	// topics and their subscriptions.
	CreateQueues bool `config:"create_queues"`

	// ConnectTimeout bounds New, and each question that Subscribe asks before it
	// returns.
	ConnectTimeout time.Duration `config:"connect_timeout" default:"10s" check:"positive"`

	// SQSOptions and SNSOptions are added to those of every client, last, so that they
	// win.
	SQSOptions []func(*sqs.Options)
	SNSOptions []func(*sns.Options)

	Consume Consume `config:""`
	Publish Publish `config:""`
}

// Consume configures subscribers.
type Consume struct {
	// Visibility is how long a message stays hidden from others without a sign of life;
	// whole seconds. It is extended as long as the message is unsettled. Zero means the
	// queue's visibility timeout.
	Visibility time.Duration `config:"visibility" check:"positive"`

	// Wait is how long a receive waits for the first message, whole seconds up to 20.
	// Close takes as long at most if nothing comes.
	Wait time.Duration `config:"wait" default:"5s" check:"positive"`

	// Pollers is how many receives may run at a time; more than one only while there is
	// plenty to receive. Zero means one for ten deliveries in flight.
	Pollers int `config:"pollers" check:"positive"`

	// Linger is how long a request waits to be filled, with deletes, or with slots to
	// receive into.
	Linger time.Duration `config:"linger" default:"10ms" check:"positive"`

	// RedeliveryDelay is the first pause before a nacked message comes again, if its
	// GiveBack names none; it doubles with each delivery, up to 30 seconds or itself.
	// SQS rounds up to seconds.
	RedeliveryDelay time.Duration `config:"redelivery_delay" default:"1s" check:"positive"`

	// Unmarshal, if not nil, replaces the wire format for reading. Its error, or panic, becomes
	// Delivery.Undecodable; the message is then what the wire format reads. It is called
	// for each delivery and must not keep or change the message.
	Unmarshal func(*types.Message) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// GroupMetadata names the metadata field that is the group of a message to a FIFO
	// queue or topic, within which order is kept; by default as watermill-aws names it.
	// Messages without it are one group.
	GroupMetadata string `config:"group_metadata" default:"MessageGroupId"`

	// DeduplicationMetadata names the field that is the deduplication id. For messages
	// without it the UUID is that.
	DeduplicationMetadata string `config:"deduplication_metadata" default:"MessageDeduplicationId"`

	// Timeout bounds Publish while the service does not answer, or wants it slower.
	Timeout time.Duration `config:"publish_timeout" default:"30s" check:"positive"`
}

const pkg = "sqs"

// Limits of SQS.
const (
	longestVisibility = 12 * time.Hour
	longestWait       = 20 * time.Second
	batchSize         = 10 // of messages received, and of entries in a batch
)

func (c *Config) setDefaults() {
	field.SetDefaults(c)
	c.SNS = strings.TrimSuffix(c.SNS, ":")
}

// validate names every invalid field and what to write instead.
func (c *Config) validate(named urlquery.Named) error {
	return urlquery.Check(pkg, c, named, func(wrong urlquery.Wrong) {
		if c.Endpoint != "" { // what may have a secret in it is not repeated
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
