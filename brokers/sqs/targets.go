package sqs

import (
	"context"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
)

// queueTarget publishes to a queue.
type queueTarget struct {
	broker *Broker
	queue  *queue
}

func (t *queueTarget) ordered() bool { return t.queue.fifo }

func (*queueTarget) action() string { return "sqs:SendMessage" }

// limits are those of the queue. A request takes as much as a message, but 256 KiB at
// least.
func (t *queueTarget) limits() (messageBytes, batchBytes int) {
	return t.queue.facts.maxBytes, max(t.queue.facts.maxBytes, defaultMaxBytes)
}

func (t *queueTarget) send(ctx context.Context, batch []*outgoing) []error {
	input := &sqs.SendMessageBatchInput{QueueUrl: &t.queue.url}
	for i, o := range batch {
		entry := types.SendMessageBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), MessageBody: &o.body, MessageAttributes: wire.ToSQS(o.attributes),
		}
		if t.queue.fifo {
			entry.MessageGroupId, entry.MessageDeduplicationId = &o.group, &o.deduplication
		}
		input.Entries = append(input.Entries, entry)
	}
	answer, err := t.broker.sqs.SendMessageBatch(ctx, input, once)
	errs := make([]error, len(batch))
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = errNotTaken
		}
	}
	if err != nil {
		if isMissing(err) {
			t.broker.forget(t.queue)
		}
		return errs
	}
	for _, e := range answer.Successful {
		taken(errs, e.Id)
	}
	for i, err := range eachEntry(len(batch), answer.Failed) {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}

func taken(errs []error, id *string) {
	if i, err := strconv.Atoi(aws.ToString(id)); err == nil && i >= 0 && i < len(errs) {
		errs[i] = nil
	}
}

// topicTarget publishes to an SNS topic.
type topicTarget struct {
	broker *Broker
	arn    string
}

func (t *topicTarget) ordered() bool { return isFIFO(t.arn) }

func (*topicTarget) action() string { return "sns:Publish" }

func (*topicTarget) limits() (messageBytes, batchBytes int) { return defaultMaxBytes, defaultMaxBytes }

func (t *topicTarget) send(ctx context.Context, batch []*outgoing) []error {
	input := &sns.PublishBatchInput{TopicArn: &t.arn}
	for i, o := range batch {
		entry := snstypes.PublishBatchRequestEntry{
			Id: aws.String(strconv.Itoa(i)), Message: &o.body, MessageAttributes: wire.ToSNS(o.attributes),
		}
		if t.ordered() {
			entry.MessageGroupId, entry.MessageDeduplicationId = &o.group, &o.deduplication
		}
		input.PublishBatchRequestEntries = append(input.PublishBatchRequestEntries, entry)
	}
	answer, err := t.broker.sns.PublishBatch(ctx, input, func(o *sns.Options) { o.RetryMaxAttempts = 1 })
	errs := make([]error, len(batch))
	for i := range errs {
		if errs[i] = err; err == nil {
			errs[i] = errNotTaken
		}
	}
	if err != nil {
		return errs
	}
	for _, e := range answer.Successful {
		taken(errs, e.Id)
	}
	failed := make([]types.BatchResultErrorEntry, len(answer.Failed))
	for i, e := range answer.Failed {
		failed[i] = types.BatchResultErrorEntry{Id: e.Id, Code: e.Code, Message: e.Message, SenderFault: e.SenderFault}
	}
	for i, err := range eachEntry(len(batch), failed) {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
}
