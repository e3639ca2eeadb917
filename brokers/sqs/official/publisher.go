package official

import (
	"context"
	"errors"
	"fmt"
	"slices"

	wmsns "github.com/ThreeDotsLabs/watermill-aws/sns"
	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	awssns "github.com/aws/aws-sdk-go-v2/service/sns"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
	"github.com/millpond-go/millpond/brokers/sqs/internal/wire"
	"github.com/millpond-go/millpond/internal/publishing"
	"github.com/millpond-go/millpond/internal/wrapped"
)

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed. The errors of
// Publish wrap brokers.ErrClosed, sqs.ErrTooLarge, sqs.ErrNoQueue, sqs.ErrDenied or
// brokers.ErrUnavailable if that is the cause.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	queues, err := wmsqs.NewPublisher(wmsqs.PublisherConfig{
		AWSConfig:                   b.account.AWS(),
		OptFns:                      slices.Concat(b.config.SQSOptions, []func(*awssqs.Options){func(o *awssqs.Options) { o.APIOptions = append(o.APIOptions, b.bounded) }}),
		DoNotCreateQueueIfNotExists: true,
		QueueUrlResolver:            asNamed{},
		GenerateSendMessageInput:    sendInput,
		Marshaler:                   marshaler{},
	}, config.Logger)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	topics, err := wmsns.NewPublisher(wmsns.PublisherConfig{
		AWSConfig:                   b.account.AWS(),
		OptFns:                      slices.Concat(b.config.SNSOptions, []func(*awssns.Options){func(o *awssns.Options) { o.APIOptions = append(o.APIOptions, b.bounded) }}),
		DoNotCreateTopicIfNotExists: true,
		TopicResolver:               wmsns.TransparentTopicResolver{},
		Marshaler:                   topicMarshaler{},
	}, config.Logger)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	p := &publisher{b, queues, topics}
	return b.open.Publisher(&wrapped.Publisher{
		Timeout: b.config.Publish.Timeout, Logger: config.Logger, Send: p.send, Library: func() error { return nil },
	})
}

// publisher has watermill-aws's publishers, one for queues and one for SNS topics.
type publisher struct {
	broker *Broker
	queues *wmsqs.Publisher
	topics *wmsns.Publisher
}

func (p *publisher) send(ctx context.Context, topic string, messages []*message.Message) error {
	to, err := p.broker.account.Destination(ctx, topic)
	if err != nil {
		return fmt.Errorf("sqs/official: publish to %q: %w", topic, err)
	}
	shells, err := publishing.Encode("sqs/official", topic, messages, func(msg *message.Message) (*message.Message, error) { return encode(to, msg) })
	if err != nil {
		return err
	}
	errs := make([]error, len(shells))
	for i, shell := range shells {
		if to.ARN != "" {
			errs[i] = p.broker.account.Explain("sns:Publish", p.topics.Publish(to.ARN, shell))
		} else {
			errs[i] = p.broker.account.Explain("sqs:SendMessage", p.queues.Publish(to.URL, shell))
		}
		if errors.Is(errs[i], sqs.ErrNoQueue) {
			to.Lost()
		}
		if errs[i] != nil {
			break
		}
	}
	return publishing.Failures("sqs/official", topic, messages, errs)
}

// bounded gives every request a deadline; watermill-aws sets none.
func (b *Broker) bounded(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("MillpondDeadline",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			ctx, cancel := context.WithTimeout(ctx, b.config.Publish.Timeout)
			defer cancel()
			return next.HandleInitialize(ctx, in)
		}), middleware.Before)
}

type outgoingKey struct{}

// encode returns a message that carries its encoded form in its context, because watermill-aws's
// marshalers do not get the destination, and must not fail.
func encode(to account.Destination, msg *message.Message) (*message.Message, error) {
	o, err := to.Encode(msg)
	if err != nil {
		return nil, err
	}
	shell := message.NewMessage(msg.UUID, nil)
	shell.SetContext(context.WithValue(context.Background(), outgoingKey{}, o))
	return shell, nil
}

func encoded(shell *message.Message) account.Outgoing {
	return shell.Context().Value(outgoingKey{}).(account.Outgoing)
}

type marshaler struct{}

func (marshaler) Marshal(shell *message.Message) (*types.Message, error) {
	o := encoded(shell)
	m := &types.Message{Body: &o.Body, MessageAttributes: wire.ToSQS(o.Attributes)}
	if o.Group != "" {
		m.Attributes = map[string]string{groupAttribute: o.Group, deduplicationAttribute: o.Deduplication}
	}
	return m, nil
}

const (
	groupAttribute         = string(types.MessageSystemAttributeNameMessageGroupId)
	deduplicationAttribute = string(types.MessageSystemAttributeNameMessageDeduplicationId)
)

func sendInput(_ context.Context, url wmsqs.QueueURL, m *types.Message) (*awssqs.SendMessageInput, error) {
	to := string(url)
	input := &awssqs.SendMessageInput{QueueUrl: &to, MessageBody: m.Body, MessageAttributes: m.MessageAttributes}
	if group, ok := m.Attributes[groupAttribute]; ok {
		id := m.Attributes[deduplicationAttribute]
		input.MessageGroupId, input.MessageDeduplicationId = &group, &id
	}
	return input, nil
}

type topicMarshaler struct{}

func (topicMarshaler) Marshal(arn wmsns.TopicArn, shell *message.Message) *awssns.PublishInput {
	o, to := encoded(shell), string(arn)
	input := &awssns.PublishInput{TopicArn: &to, Message: &o.Body, MessageAttributes: wire.ToSNS(o.Attributes)}
	if o.Group != "" {
		input.MessageGroupId, input.MessageDeduplicationId = &o.Group, &o.Deduplication
	}
	return input
}
