package official

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmsqs "github.com/ThreeDotsLabs/watermill-aws/sqs"
	"github.com/ThreeDotsLabs/watermill/message"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"golang.org/x/sync/semaphore"

	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
)

// subscription is one Subscribe call, and one subscriber of watermill-aws with as many
// workers as deliveries may be in flight. A worker receives one message and keeps it until
// it is settled.
//
// A slot is taken by each receive and goes over to the message that it brings. So who has
// all slots knows that nothing is under way.
type subscription struct {
	subscriber *Subscriber
	topic      string
	queue      account.Queue
	logger     watermill.LoggerAdapter
	inner      *wmsqs.Subscriber

	intake    context.Context // ends with the caller's context, or by Close
	cancel    context.CancelFunc
	slots     *semaphore.Weighted
	received  sync.Map // *message.Message → *receipt, from the unmarshaler to the reader
	out       chan *message.Message
	abandoned chan struct{} // closed when the drain is over

	working sync.WaitGroup // the reader and everything it has begun
}

func newSubscription(ctx context.Context, s *Subscriber, topic string, q account.Queue) *subscription {
	sub := &subscription{
		subscriber: s,
		topic:      topic,
		queue:      q,
		logger:     s.config.Logger.With(watermill.LogFields{"topic": topic, "group": s.config.Group, "queue": q.Name}),
		slots:      semaphore.NewWeighted(int64(s.config.InFlight)),
		out:        make(chan *message.Message),
		abandoned:  make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(ctx)
	unlink := context.AfterFunc(s.closing, cancel)
	sub.intake = ctx
	sub.cancel = func() { unlink(); cancel() }
	return sub
}

// start lets watermill-aws receive.
func (s *subscription) start(ctx context.Context) (<-chan *message.Message, error) {
	b := s.subscriber.broker
	var err error
	s.inner, err = wmsqs.NewSubscriber(wmsqs.SubscriberConfig{
		AWSConfig:                   b.aws,
		OptFns:                      append(b.with(s.subscriber.options...), s.gate),
		DoNotCreateQueueIfNotExists: true,
		QueueUrlResolver:            asNamed{},
		GenerateReceiveMessageInput: s.receiveInput,
		ConsumeWorkers:              s.subscriber.config.InFlight,
		Unmarshaler:                 unmarshaler{s},
	}, s.subscriber.config.Logger)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	// Not the caller's context: its end would take away what handlers have in hand.
	in, err := s.inner.Subscribe(context.WithoutCancel(ctx), s.queue.URL)
	if err != nil {
		return nil, fmt.Errorf("sqs/official: %w", err)
	}
	return in, nil
}

// receiveInput asks for one message, so that none waits behind another while its
// visibility runs out, and for all that is known about it.
func (s *subscription) receiveInput(context.Context, wmsqs.QueueURL) (*awssqs.ReceiveMessageInput, error) {
	config := &s.subscriber.broker.config.Consume
	return &awssqs.ReceiveMessageInput{
		QueueUrl:                    &s.queue.URL,
		MaxNumberOfMessages:         1,
		WaitTimeSeconds:             seconds(config.Wait),
		VisibilityTimeout:           seconds(config.Visibility),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	}, nil
}

// run delivers until the intake ends, then drains.
func (s *subscription) run(in <-chan *message.Message) {
	s.working.Go(func() {
		for msg := range in {
			d := s.newDelivery(msg)
			s.working.Go(d.run)
		}
	})
	<-s.intake.Done()
	s.drain()
	close(s.abandoned)
	_ = s.inner.Close() // never fails; cuts off receives that are still under way
	s.working.Wait()
	close(s.out)
	s.cancel()
}

// drain waits until every slot is free, and then takes them all.
func (s *subscription) drain() {
	timeout := s.subscriber.config.DrainTimeout
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if s.slots.Acquire(ctx, int64(s.subscriber.config.InFlight)) != nil {
		s.logger.Info("Unsettled messages are delivered again: they were not settled in time", watermill.LogFields{
			"drain_timeout": timeout.String(),
		})
	}
}

// seconds is how SQS counts: whole ones, never fewer.
func seconds(d time.Duration) int32 {
	return int32((d + time.Second - 1) / time.Second) // #nosec G115 -- at most 12 hours
}

// asNamed resolves the URL of a queue, which is all that watermill-aws is given.
type asNamed struct{}

func (asNamed) ResolveQueueUrl(_ context.Context, params wmsqs.ResolveQueueUrlParams) (wmsqs.QueueUrlResolverResult, error) { //nolint:revive,staticcheck // watermill-aws's spelling
	url, exists := wmsqs.QueueURL(params.Topic), true
	return wmsqs.QueueUrlResolverResult{QueueName: wmsqs.QueueName(params.Topic), QueueURL: &url, Exists: &exists}, nil
}
