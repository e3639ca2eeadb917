package sqs

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// Config configures a [Broker]. The zero value is valid. Each field that a URL can set has
// its parameter in the package documentation.
type Config struct {
	// AWS, if not nil, is used as it is, with Region and Endpoint on top. Otherwise the
	// SDK's default chain finds region and credentials.
	AWS *aws.Config

	Region   string // empty: that of AWS, or what the SDK finds
	Endpoint string // of an emulator or a VPC endpoint, such as http://127.0.0.1:9324; empty: AWS's

	// Queues are those that Capabilities speaks of. New looks at each. Others can be used
	// as well.
	Queues []string

	// Queue makes the name of the queue that is subscribed to from {topic} and {group},
	// for topics that are no URL and no ARN of a queue. Empty means {topic}, and
	// {topic}-{group} for SNS topics.
	Queue string

	// SNS, if not empty, is what stands before the name in the ARNs of topics, such as
	// arn:aws:sns:eu-central-1:123456789012. Names of topics are then names of SNS
	// topics, and each group has a queue of its own.
	SNS string

	// DeliveryLimit is the maxReceiveCount that all queues that are subscribed to are
	// said to have. Subscribe returns an error for one that allows fewer receives. Zero:
	// it is read from the queues.
	DeliveryLimit int

	// CreateQueues makes queues that are missing, with Consume.Visibility as their
	// visibility timeout and, if DeliveryLimit is set, a dead-letter queue; and SNS
	// topics and their subscriptions.
	CreateQueues bool

	// ConnectTimeout bounds New, and each question that Subscribe asks before it
	// returns. Zero means 10 seconds.
	ConnectTimeout time.Duration

	// SQSOptions and SNSOptions are added to those of every client, last, so that they
	// win.
	SQSOptions []func(*sqs.Options)
	SNSOptions []func(*sns.Options)

	Consume Consume
	Publish Publish
}

// Consume configures subscribers.
type Consume struct {
	// Visibility is how long a message stays hidden from others without a sign of life;
	// whole seconds. It is extended as long as the message is unsettled. Zero means the
	// queue's visibility timeout.
	Visibility time.Duration

	// Wait is how long a receive waits for the first message, whole seconds up to 20.
	// Close takes as long at most if nothing comes. Zero means 5 seconds.
	Wait time.Duration

	// Pollers is how many receives may run at a time; more than one only while there is
	// plenty to receive. Zero means one for ten deliveries in flight.
	Pollers int

	// Linger is how long a request waits to be filled, with deletes, or with slots to
	// receive into. Zero means 10 ms.
	Linger time.Duration

	// RedeliveryDelay is the first pause before a nacked message comes again, if its
	// GiveBack names none; it doubles with each delivery, up to 30 seconds or itself.
	// SQS rounds up to seconds. Zero means 1 second.
	RedeliveryDelay time.Duration

	// Unmarshal, if not nil, replaces the wire format for reading. Its error, or panic, becomes
	// Delivery.Undecodable; the message is then what the wire format reads. It is called
	// for each delivery and must not keep or change the message.
	Unmarshal func(*types.Message) (*message.Message, error)
}

// Publish configures publishers.
type Publish struct {
	// GroupMetadata names the metadata field that is the group of a message to a FIFO
	// queue or topic, within which order is kept. Empty means MessageGroupId. Messages
	// without it are one group.
	GroupMetadata string

	// DeduplicationMetadata names the field that is the deduplication id. Empty means
	// MessageDeduplicationId. For messages without it the UUID is that.
	DeduplicationMetadata string

	// Timeout bounds Publish while the service does not answer, or wants it slower. Zero
	// means 30 seconds.
	Timeout time.Duration
}

// The names that watermill-aws gives to the fields of FIFO messages.
const (
	defaultGroupMetadata         = "MessageGroupId"
	defaultDeduplicationMetadata = "MessageDeduplicationId"
)

const pkg = "sqs"

// Limits of SQS.
const (
	longestVisibility = 12 * time.Hour
	longestWait       = 20 * time.Second
	batchSize         = 10 // of messages received, and of entries in a batch
)

func (c *Config) setDefaults() {
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, 10*time.Second)
	c.Consume.Wait = cmp.Or(c.Consume.Wait, 5*time.Second)
	c.Consume.Linger = cmp.Or(c.Consume.Linger, 10*time.Millisecond)
	c.Consume.RedeliveryDelay = cmp.Or(c.Consume.RedeliveryDelay, time.Second)
	c.Publish.GroupMetadata = cmp.Or(c.Publish.GroupMetadata, defaultGroupMetadata)
	c.Publish.DeduplicationMetadata = cmp.Or(c.Publish.DeduplicationMetadata, defaultDeduplicationMetadata)
	c.Publish.Timeout = cmp.Or(c.Publish.Timeout, 30*time.Second)
	c.SNS = strings.TrimSuffix(c.SNS, ":")
}

// validate names every invalid field and what to write instead.
func (c *Config) validate() error {
	return c.problems(func(field string) string { return "Config." + field })
}

// problems is validate in the caller's names for the fields.
func (c *Config) problems(named func(field string) string) error {
	var errs []error
	wrong := func(field string, value any, fix string) {
		errs = append(errs, fmt.Errorf("sqs: %s is %v: %s", named(field), value, fix))
	}
	if c.Endpoint != "" { // what may have a secret in it is not repeated
		if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			errs = append(errs, fmt.Errorf("sqs: %s is no address: write http://host:port or https://host", named("Endpoint")))
		} else if u.User != nil {
			errs = append(errs, fmt.Errorf("sqs: %s names a user: remove it, credentials come from the SDK's provider chain", named("Endpoint")))
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
	for field, n := range map[string]int{"Consume.Pollers": c.Consume.Pollers, "DeliveryLimit": c.DeliveryLimit} {
		if n < 0 || n > math.MaxInt32 {
			wrong(field, n, "use a positive number, or 0 for the default")
		}
	}
	if c.DeliveryLimit > 1000 {
		wrong("DeliveryLimit", c.DeliveryLimit, "SQS allows maxReceiveCount up to 1000")
	}
	for field, d := range map[string]time.Duration{
		"ConnectTimeout": c.ConnectTimeout, "Consume.Linger": c.Consume.Linger,
		"Consume.RedeliveryDelay": c.Consume.RedeliveryDelay, "Publish.Timeout": c.Publish.Timeout,
	} {
		if d < 0 {
			wrong(field, d, "use a positive duration, or 0 for the default")
		}
	}
	if d := c.Consume.Visibility; d < 0 || d%time.Second != 0 || d > longestVisibility {
		wrong("Consume.Visibility", d, "use whole seconds up to 12h, or 0 for the queue's")
	}
	if d := c.Consume.Wait; d < 0 || d%time.Second != 0 || d > longestWait {
		wrong("Consume.Wait", d, "use whole seconds up to 20s, or 0 for 5s")
	}
	return errors.Join(errs...)
}
