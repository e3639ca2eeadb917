package sqs

import (
	"context"
	"slices"
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

// limits are the queue's limits in bytes. A request may be as large as a message, but at least 256
// KiB.
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
	if err != nil {
		if isMissing(err) {
			t.broker.forget(t.queue)
		}
		return slices.Repeat([]error{err}, len(batch))
	}
	taken := make([]*string, len(answer.Successful))
	for i, e := range answer.Successful {
		taken[i] = e.Id
	}
	return outcomes(len(batch), taken, answer.Failed)
}

// outcomes assigns a batch's results to its messages.
func outcomes(n int, taken []*string, failed []types.BatchResultErrorEntry) []error {
	errs := slices.Repeat([]error{errNotTaken}, n)
	for _, id := range taken {
		if i, err := strconv.Atoi(aws.ToString(id)); err == nil && i >= 0 && i < n {
			errs[i] = nil
		}
	}
	for i, err := range eachEntry(n, failed) {
		if err != nil {
			errs[i] = err
		}
	}
	return errs
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
	if err != nil {
		return slices.Repeat([]error{err}, len(batch))
	}
	taken := make([]*string, len(answer.Successful))
	for i, e := range answer.Successful {
		taken[i] = e.Id
	}
	failed := make([]types.BatchResultErrorEntry, len(answer.Failed))
	for i, e := range answer.Failed {
		failed[i] = types.BatchResultErrorEntry{Id: e.Id, Code: e.Code, Message: e.Message, SenderFault: e.SenderFault}
	}
	return outcomes(len(batch), taken, failed)
}
