package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
)

// queue is a queue that was looked up. It does not change.
type queue struct {
	name  string // as it was looked up
	url   string
	fifo  bool
	facts facts
}

// facts are the queue attributes that matter here.
type facts struct {
	known       bool // false: GetQueueAttributes is not allowed
	arn         string
	visibility  time.Duration
	maxReceives int // 0: there is no redrive policy
	maxBytes    int
}

// Assumed for a queue whose attributes may not be read.
const (
	defaultVisibility = 30 * time.Second
	defaultMaxBytes   = 256 << 10
)

// queueOf finds a queue by its name, URL or ARN, and creates it if that is configured. It caches
// the result.
func (b *Broker) queueOf(ctx context.Context, client *sqs.Client, name string) (*queue, error) {
	b.mu.Lock()
	q := b.queues[name]
	b.mu.Unlock()
	if q != nil {
		return q, nil
	}
	q, err := b.find(ctx, client, name)
	if errors.Is(err, ErrNoQueue) && b.config.CreateQueues && isName(name) {
		if err = b.create(ctx, client, name); err == nil {
			q, err = b.find(ctx, client, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sqs: queue %q (%s): %w", name, b.config.noteOf(b.aws.Region), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues[name] = q
	return q, nil
}

// forget makes queueOf look up the queue again.
func (b *Broker) forget(q *queue) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queues[q.name] == q {
		delete(b.queues, q.name)
	}
}

func (b *Broker) find(ctx context.Context, client *sqs.Client, name string) (*queue, error) {
	q := &queue{name: name, fifo: isFIFO(name)}
	switch {
	case isURL(name):
		q.url = name
	default:
		input := &sqs.GetQueueUrlInput{QueueName: &name}
		if arn, ok := parseARN(name); ok {
			input.QueueName, input.QueueOwnerAWSAccountId = aws.String(arn.name), aws.String(arn.account)
		}
		found, err := client.GetQueueUrl(ctx, input)
		if err != nil {
			return nil, explain("sqs:GetQueueUrl", err)
		}
		q.url = aws.ToString(found.QueueUrl)
	}
	var err error
	q.facts, err = factsOf(ctx, client, q.url)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// factsOf reads a queue's attributes. A refusal is a valid answer.
func factsOf(ctx context.Context, client *sqs.Client, url string) (facts, error) {
	assumed := facts{visibility: defaultVisibility, maxBytes: defaultMaxBytes}
	answer, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if isCode(err, deniedCodes) {
		return assumed, nil
	}
	if err != nil {
		return facts{}, explain("sqs:GetQueueAttributes", err)
	}
	f := assumed
	f.known = true
	f.arn = answer.Attributes[string(types.QueueAttributeNameQueueArn)]
	if seconds, err := strconv.Atoi(answer.Attributes[string(types.QueueAttributeNameVisibilityTimeout)]); err == nil {
		f.visibility = time.Duration(seconds) * time.Second
	}
	if n, err := strconv.Atoi(answer.Attributes[string(types.QueueAttributeNameMaximumMessageSize)]); err == nil && n > 0 {
		f.maxBytes = n
	}
	f.maxReceives = maxReceives(answer.Attributes[string(types.QueueAttributeNameRedrivePolicy)])
	return f, nil
}

// maxReceives reads a redrive policy, in which the number may be a text.
func maxReceives(policy string) int {
	var p struct {
		Max any `json:"maxReceiveCount"`
	}
	if policy == "" || json.Unmarshal([]byte(policy), &p) != nil {
		return 0
	}
	n, err := strconv.Atoi(fmt.Sprint(p.Max))
	if err != nil {
		return 0
	}
	return n
}

// deadLetters returns the name of the dead-letter queue for a queue that is created with a delivery
// limit.
func deadLetters(name string) string {
	base, fifo := strings.CutSuffix(name, fifoSuffix)
	return queueName(base+"-dead-letters", fifo)
}

// create creates a queue, and its dead-letter queue if there is a limit.
func (b *Broker) create(ctx context.Context, client *sqs.Client, name string) error {
	attributes := map[string]string{}
	if isFIFO(name) {
		attributes[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	if limit := b.config.DeliveryLimit; limit > 0 {
		dead := deadLetters(name)
		if _, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &dead, Attributes: maps.Clone(attributes)}); err != nil {
			return explain("sqs:CreateQueue", err)
		}
		q, err := b.find(ctx, client, dead)
		if err != nil {
			return err
		}
		policy, err := json.Marshal(map[string]any{"deadLetterTargetArn": q.facts.arn, "maxReceiveCount": limit})
		if err != nil {
			return err
		}
		attributes[string(types.QueueAttributeNameRedrivePolicy)] = string(policy)
	}
	if d := b.config.Consume.Visibility; d > 0 {
		attributes[string(types.QueueAttributeNameVisibilityTimeout)] = strconv.Itoa(int(d / time.Second))
	}
	_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes})
	if isCode(err, []string{"QueueNameExists", "QueueAlreadyExists"}) {
		return nil // another client has just created it
	}
	if isCode(err, []string{"QueueDeletedRecently", "AWS.SimpleQueueService.QueueDeletedRecently"}) {
		return fmt.Errorf("%w: it was deleted less than a minute ago, and SQS lets it be created again only after a minute: %w", brokers.ErrUnavailable, err)
	}
	return explain("sqs:CreateQueue", err)
}
