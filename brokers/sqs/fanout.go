package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

var errOtherTopic = errors.New("SNS has created a topic elsewhere: check the account and region of the ARN")

// ensureTopic creates an SNS topic if it is missing.
func (b *Broker) ensureTopic(ctx context.Context, topicARN string) error {
	if _, known := b.topics.Load(topicARN); known {
		return nil
	}
	parsed, _ := parseARN(topicARN)
	input := &sns.CreateTopicInput{Name: &parsed.name}
	if isFIFO(parsed.name) {
		input.Attributes = map[string]string{"FifoTopic": "true"}
	}
	made, err := b.sns.CreateTopic(ctx, input)
	if err != nil {
		return fmt.Errorf("sqs: topic %q: %w", topicARN, explain("sns:CreateTopic", err))
	}
	if got := aws.ToString(made.TopicArn); got != topicARN {
		return fmt.Errorf("sqs: topic %q became %q: %w", topicARN, got, errOtherTopic)
	}
	b.topics.Store(topicARN, true)
	return nil
}

// feed is a queue's subscription to a topic. A queue that was created again is another queue.
type feed struct {
	topicARN string
	queue    *queue
}

// fanOut creates an SNS topic, lets it send to a queue, and subscribes the queue to it with raw
// delivery, as far as any of these is missing.
func (b *Broker) fanOut(ctx context.Context, client *sqs.Client, topicARN string, q *queue) error {
	this := feed{topicARN, q}
	if _, known := b.topics.Load(this); known {
		return nil
	}
	if err := b.ensureTopic(ctx, topicARN); err != nil {
		return err
	}
	if err := allow(ctx, client, topicARN, q); err != nil {
		return fmt.Errorf("sqs: queue %q: %w", q.name, err)
	}
	_, err := b.sns.Subscribe(ctx, &sns.SubscribeInput{
		TopicArn: &topicARN, Protocol: aws.String("sqs"), Endpoint: aws.String(q.facts.arn),
		Attributes: map[string]string{"RawMessageDelivery": "true"}, ReturnSubscriptionArn: true,
	})
	if err != nil {
		return fmt.Errorf("sqs: topic %q, queue %q: %w", topicARN, q.name, explain("sns:Subscribe", err))
	}
	b.topics.Store(this, true)
	return nil
}

// statement is a statement of a queue's policy.
type statement map[string]any

// allow adds a statement to a queue's policy, if it has none for this topic.
func allow(ctx context.Context, client *sqs.Client, topicARN string, q *queue) error {
	const name = types.QueueAttributeNamePolicy
	answer, err := client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{name}})
	if err != nil {
		return explain("sqs:GetQueueAttributes", err)
	}
	policy := map[string]any{"Version": "2012-10-17"}
	if text := answer.Attributes[string(name)]; text != "" {
		if err := json.Unmarshal([]byte(text), &policy); err != nil {
			return fmt.Errorf("its policy cannot be read: %w", err)
		}
	}
	statements, _ := policy["Statement"].([]any)
	sid := queueName("millpond "+topicARN, false)
	for _, s := range statements {
		if s, ok := s.(map[string]any); ok && s["Sid"] == sid {
			return nil
		}
	}
	changed := maps.Clone(policy)
	changed["Statement"] = append(statements, statement{
		"Sid": sid, "Effect": "Allow", "Principal": map[string]string{"Service": "sns.amazonaws.com"},
		"Action": "sqs:SendMessage", "Resource": q.facts.arn,
		"Condition": map[string]any{"ArnEquals": map[string]string{"aws:SourceArn": topicARN}},
	})
	text, err := json.Marshal(changed)
	if err != nil {
		return err
	}
	_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{
		QueueUrl: &q.url, Attributes: map[string]string{string(name): string(text)},
	})
	return explain("sqs:SetQueueAttributes", err)
}
