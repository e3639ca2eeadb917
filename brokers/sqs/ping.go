package sqs

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
)

// Ping sends SQS one request, about a known queue, or otherwise for a list of queues. The error
// wraps brokers.ErrUnavailable, and also [ErrDenied] or [ErrNoQueue] if that is the reason.
func (b *Broker) Ping(ctx context.Context) error {
	b.mu.Lock()
	url := b.asked
	b.mu.Unlock()
	once := func(o *sqs.Options) { o.Retryer = aws.NopRetryer{} }
	var err error
	if url == "" {
		_, err = b.sqs.ListQueues(ctx, &sqs.ListQueuesInput{MaxResults: aws.Int32(1)}, once)
	} else {
		_, err = b.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
			QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameQueueArn},
		}, once)
	}
	if err == nil {
		return nil
	}
	err = explain("ask SQS", err)
	if !errors.Is(err, brokers.ErrUnavailable) {
		err = errors.Join(brokers.ErrUnavailable, err)
	}
	return err
}
