package official

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/millpond-go/millpond/brokers"
)

// answerTimeout is how long a request may take beyond what it is told to wait. Without it
// a service that has stopped answering would be waited for until the connection breaks.
const answerTimeout = 10 * time.Second

// receipt is what came with a message from its receive.
type receipt struct {
	handle string
	until  time.Time // when SQS takes the message back
	facts  brokers.Delivery
}

// unmarshaler never fails, because then watermill-aws would give the message to nobody.
type unmarshaler struct{ subscription *subscription }

func (u unmarshaler) Unmarshal(m *types.Message) (*message.Message, error) {
	s := u.subscription
	b := s.subscriber.broker
	received := time.Now()
	msg, facts := b.account.Decode(s.topic, s.queue, m)
	r := &receipt{until: received.Add(b.config.Consume.Visibility), facts: facts}
	if m.ReceiptHandle != nil {
		r.handle = *m.ReceiptHandle
	}
	s.received.Store(msg, r)
	return msg, nil
}

// gate is the place where the SDK lets others into a client. It begins no receive once
// the intake has ended, but lets those end that are under way: what a receive would bring
// that is cut off stays hidden until its visibility ends, and has spent a delivery.
func (s *subscription) gate(o *awssqs.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("MillpondGate", s.pass), middleware.Before)
	})
}

func (s *subscription) pass(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
	if _, ok := in.Parameters.(*awssqs.ReceiveMessageInput); !ok {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		return next.HandleInitialize(ctx, in)
	}
	if s.intake.Err() != nil || s.slots.Acquire(s.intake, 1) != nil {
		<-ctx.Done() // until the drain is over: the worker would only ask again
		return middleware.InitializeOutput{}, middleware.Metadata{}, context.Canceled
	}
	ctx, cancel := context.WithTimeout(ctx, s.subscriber.broker.config.Consume.Wait+answerTimeout)
	defer cancel()
	out, metadata, err := next.HandleInitialize(ctx, in)
	if result, ok := out.Result.(*awssqs.ReceiveMessageOutput); err != nil || !ok || len(result.Messages) == 0 {
		s.slots.Release(1)
	}
	return out, metadata, err
}
