package official

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
	"github.com/millpond-go/millpond/internal/wrapped"
)

const (
	// answerTimeout bounds the request that gives a message back.
	answerTimeout = 10 * time.Second

	// longestDelay is slightly less than the 12 hours for which SQS hides a message after its
	// receive.
	longestDelay = 12*time.Hour - time.Minute
)

// source is one Subscribe call, and one subscriber of watermill-aws with a worker for each delivery
// that may be in flight. A worker receives one message and keeps it until it is settled.
type source struct {
	account    account.Account
	config     *sqs.Config
	subscriber brokers.SubscriberConfig
	topic      string
	queue      account.Queue
	unread     func()
	client     *awssqs.Client // gives messages back
	received   sync.Map       // *message.Message → receipt
}

// receipt has the facts of a received message.
type receipt struct {
	handle *string
	until  time.Time // when SQS takes the message back
	facts  brokers.Delivery
}

// Start implements wrapped.Source.
func (s *source) Start(ctx context.Context) (message.Subscriber, <-chan *message.Message, error) {
	inner, err := wmsqs.NewSubscriber(wmsqs.SubscriberConfig{
		AWSConfig:                   s.account.AWS(),
		OptFns:                      s.config.SQSOptions,
		DoNotCreateQueueIfNotExists: true,
		QueueUrlResolver:            asNamed{},
		GenerateReceiveMessageInput: s.receiveInput,
		ConsumeWorkers:              s.subscriber.InFlight,
		Unmarshaler:                 unmarshaler{s},
	}, s.subscriber.Logger)
	if err != nil {
		return nil, nil, fmt.Errorf("sqs/official: %w", err)
	}
	s.client = awssqs.NewFromConfig(s.account.AWS(), s.config.SQSOptions...)
	in, err := inner.Subscribe(ctx, s.queue.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("sqs/official: %w", err)
	}
	return reading{inner, s.unread}, in, nil
}

// reading notes, when it is closed, that the group no longer reads the queue.
type reading struct {
	message.Subscriber

	unread func()
}

func (r reading) Close() error {
	defer r.unread()
	return r.Subscriber.Close()
}

// receiveInput asks for one message at a time, so that none waits behind another while its
// visibility runs out. It asks for all attributes.
func (s *source) receiveInput(context.Context, wmsqs.QueueURL) (*awssqs.ReceiveMessageInput, error) {
	return &awssqs.ReceiveMessageInput{
		QueueUrl:                    &s.queue.URL,
		MaxNumberOfMessages:         1,
		WaitTimeSeconds:             seconds(s.config.Consume.Wait),
		VisibilityTimeout:           seconds(s.config.Consume.Visibility),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}, nil
}

// unmarshaler never fails: after an error watermill-aws would never deliver the message.
type unmarshaler struct{ source *source }

func (u unmarshaler) Unmarshal(m *types.Message) (*message.Message, error) {
	s := u.source
	until := time.Now().Add(s.config.Consume.Visibility)
	msg, facts := s.account.Decode(s.topic, s.queue, m)
	s.received.Store(msg, receipt{m.ReceiptHandle, until, facts})
	return msg, nil
}

// Read implements wrapped.Source.
func (s *source) Read(from *message.Message) brokers.Delivery {
	r, _ := s.received.Load(from)
	return r.(receipt).facts
}

// Settle implements wrapped.Source. Once SQS has taken the message back, an ack might delete a
// message that another consumer has, and a nack might hide it.
func (s *source) Settle(from *message.Message, answer wrapped.Answer) {
	value, _ := s.received.LoadAndDelete(from)
	r := value.(receipt)
	after := answer.GiveBack.After
	if after <= 0 {
		after = s.config.Consume.RedeliveryDelay
	}
	switch ours := time.Now().Before(r.until); {
	case answer.Acked && ours:
		from.Ack() // deletes it
	case answer.Acked:
		s.subscriber.Logger.Info("A message is redelivered, because its handler took longer than its visibility", watermill.LogFields{
			"message_uuid": from.UUID, "visibility": s.config.Consume.Visibility.String(),
		})
		from.Nack()
	case after > 0 && ours:
		s.comeAgain(from, r, min(after, longestDelay))
		from.Nack()
	default:
		from.Nack() // a nack does nothing
	}
	<-from.Context().Done()
}

// comeAgain makes the message visible again after a delay, instead of when its visibility ends.
func (s *source) comeAgain(from *message.Message, r receipt, after time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	_, err := s.client.ChangeMessageVisibility(ctx, &awssqs.ChangeMessageVisibilityInput{
		QueueUrl: &s.queue.URL, ReceiptHandle: r.handle, VisibilityTimeout: seconds(after),
	})
	if err != nil {
		s.subscriber.Logger.Error("A nacked message is redelivered only when its visibility ends, which cannot be changed", s.account.Explain("sqs:ChangeMessageVisibility", err), watermill.LogFields{
			"message_uuid": from.UUID, "visibility": s.config.Consume.Visibility.String(), "delay": after.String(),
		})
	}
}

// seconds rounds up to SQS's unit.
func seconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second) // #nosec G115 -- at most 12 hours
}

// asNamed returns a queue's URL, which is already known.
type asNamed struct{}

func (asNamed) ResolveQueueUrl(_ context.Context, params wmsqs.ResolveQueueUrlParams) (wmsqs.QueueUrlResolverResult, error) { //nolint:revive,staticcheck // watermill-aws's spelling
	url := wmsqs.QueueURL(params.Topic)
	return wmsqs.QueueUrlResolverResult{QueueName: wmsqs.QueueName(params.Topic), QueueURL: &url, Exists: aws.Bool(true)}, nil
}
