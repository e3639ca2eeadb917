package official

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
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
)

// publisher guards watermill-aws's publishers, one for queues and one for SNS topics,
// which know neither the end of a call nor that of themselves.
type publisher struct {
	broker *Broker
	queues *wmsqs.Publisher
	topics *wmsns.Publisher

	mu     sync.RWMutex
	closed bool
}

func newPublisher(b *Broker, logger watermill.LoggerAdapter) (*publisher, error) {
	bound := bounded(b.config.Publish.Timeout)
	queues, err := wmsqs.NewPublisher(wmsqs.PublisherConfig{
		AWSConfig:                   b.aws,
		OptFns:                      b.with(func(o *awssqs.Options) { o.APIOptions = append(o.APIOptions, bound) }),
		DoNotCreateQueueIfNotExists: true,
		QueueUrlResolver:            asNamed{},
		GenerateSendMessageInput:    sendInput,
		Marshaler:                   marshaler{},
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	topics, err := wmsns.NewPublisher(wmsns.PublisherConfig{
		AWSConfig: b.aws,
		OptFns: append(append([]func(*awssns.Options){}, b.config.SNSOptions...),
			func(o *awssns.Options) { o.APIOptions = append(o.APIOptions, bound) }),
		DoNotCreateTopicIfNotExists: true,
		TopicResolver:               wmsns.TransparentTopicResolver{},
		Marshaler:                   topicMarshaler{},
	}, logger)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	return &publisher{broker: b, queues: queues, topics: topics}, nil
}

// bounded gives every request a deadline. Watermill-aws gives none.
func bounded(d time.Duration) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("MillpondDeadline",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				ctx, cancel := context.WithTimeout(ctx, d)
				defer cancel()
				return next.HandleInitialize(ctx, in)
			}), middleware.Before)
	}
}

// Publish sends the messages one after the other and returns nil when SQS, or SNS, has
// taken each. After an error the messages before the one at fault were sent, and that one
// may have been. Errors wrap brokers.ErrClosed, sqs.ErrTooLarge, sqs.ErrNoQueue,
// sqs.ErrDenied or brokers.ErrUnavailable where that is the cause. The contexts of
// messages have no influence.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return fmt.Errorf("sqs/official: publisher: %w", brokers.ErrClosed)
	}
	if len(messages) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.broker.config.Publish.Timeout)
	defer cancel()
	to, err := p.broker.account.Destination(ctx, topic)
	if err != nil {
		return fmt.Errorf("sqs/official: publish to %q: %w", topic, err)
	}
	shells := make([]*message.Message, len(messages))
	for i, msg := range messages { // all, before one is sent
		if shells[i], err = encode(to, msg); err != nil {
			return fmt.Errorf("sqs/official: publish to %q, message %d of %d: %w", topic, i+1, len(messages), err)
		}
	}
	for i, shell := range shells {
		if err := p.send(to, shell); err != nil {
			return fmt.Errorf("sqs/official: publish to %q, message %d of %d (UUID %q): %w", topic, i+1, len(messages), shell.UUID, err)
		}
	}
	return nil
}

func (p *publisher) send(to account.Destination, shell *message.Message) error {
	var err error
	if to.ARN != "" {
		err = p.broker.account.Explain("sns:Publish", p.topics.Publish(to.ARN, shell))
	} else {
		err = p.broker.account.Explain("sqs:SendMessage", p.queues.Publish(to.URL, shell))
	}
	if errors.Is(err, sqs.ErrNoQueue) {
		to.Lost()
	}
	return err
}

// Close waits for what is being published, and ends the publisher. It may be called many
// times.
func (p *publisher) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.broker.publishers.Remove(p)
	return nil
}

type outgoingKey struct{}

// encode returns a message that carries the encoded one in its context, since
// watermill-aws's marshalers are not told what they encode for, and may not fail.
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
