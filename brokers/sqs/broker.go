package sqs

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/openset"
	"github.com/millpond-go/millpond/internal/urlquery"
)

// Broker is SQS, and SNS in front of it, in one account and region. It is safe for
// concurrent use.
type Broker struct {
	config Config
	aws    aws.Config
	hang   func() // closes idle connections if the broker made them
	sqs    *sqs.Client
	sns    *sns.Client

	open context.Context // ended by Close: nothing more is published
	end  context.CancelFunc

	known
	subscribers openset.Set[*Subscriber]

	// options, if not nil, adds to a subscriber's client. Tests use it to cut the client off.
	options func(*Subscriber) []func(*sqs.Options)
}

// known caches what was looked up.
type known struct {
	topics sync.Map // existing SNS topics, by ARN, and feeds

	mu      sync.Mutex
	queues  map[string]*queue // by name or URL, as asked for
	readers map[string]reader // which group reads a queue, by URL
	limit   brokers.DeliveryLimit
	asked   string // a queue that Ping can ask about
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// New finds region and credentials, and looks up each of Config.Queues. The error names every
// invalid field, or says what is missing. The latter comes within Config.ConnectTimeout, and wraps
// [ErrNoQueue] for a queue that does not exist, [ErrDenied] for insufficient credentials, and
// brokers.ErrUnavailable without an answer.
func New(ctx context.Context, config Config) (*Broker, error) {
	if err := config.validate(urlquery.InGo); err != nil {
		return nil, err
	}
	config.setDefaults()
	ctx, cancel := context.WithTimeout(ctx, config.ConnectTimeout)
	defer cancel()
	b := &Broker{config: config, known: known{queues: make(map[string]*queue), readers: make(map[string]reader)}}
	b.open, b.end = context.WithCancel(context.Background())
	if config.DeliveryLimit > 0 {
		b.limit = brokers.DeliveryLimit{Known: true, Max: config.DeliveryLimit}
	}
	if err := b.connect(ctx); err != nil {
		return nil, err
	}
	for _, name := range config.Queues {
		q, err := b.queueOf(ctx, b.sqs, name)
		if err == nil {
			err = b.know(q)
		}
		if err != nil {
			b.hang()
			return nil, err
		}
	}
	return b, nil
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. The error names every invalid
// field, or wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults(pkg)
	if err != nil {
		return nil, err
	}
	s := newSubscriber(b, config)
	if !b.subscribers.Add(s) {
		return nil, fmt.Errorf("sqs: broker: %w", brokers.ErrClosed)
	}
	return s, nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	if b.open.Err() != nil {
		return nil, fmt.Errorf("sqs: broker: %w", brokers.ErrClosed)
	}
	return newPublisher(b, config.Logger), nil
}

// Capabilities describes SQS. It promises Ordered, NativeID and Key if all queues are FIFO queues
// by the names in Config.Queues or in Config.Queue. The delivery limit is the lowest of the known
// queues: those of Config.Queues and those that were subscribed to. If none is known, the limit is
// unknown, unless Config.DeliveryLimit sets it.
func (b *Broker) Capabilities() brokers.Capabilities {
	b.mu.Lock()
	defer b.mu.Unlock()
	fifo := b.config.onlyFIFO()
	return brokers.Capabilities{
		System:          "aws_sqs",
		NativeID:        fifo,
		Coordinates:     true,
		Key:             fifo,
		DeliveryCount:   true,
		Time:            true,
		Ordered:         fifo,
		DeliveryLimit:   b.limit,
		DelayedGiveBack: true,
		SettleLimit:     longestVisibility,
		ReplayHorizon:   brokers.ReplayHorizon{Known: true},
	}
}

// know includes a queue's redrive policy in Capabilities.
func (b *Broker) know(q *queue) error {
	b.mu.Lock()
	b.asked = q.url
	b.mu.Unlock()
	if !q.facts.known {
		return nil
	}
	limit := q.facts.maxReceives
	if declared := b.config.DeliveryLimit; declared > 0 {
		if limit > 0 && limit < declared {
			return fmt.Errorf("sqs: queue %q: its redrive policy allows %d receives, and delivery_limit is %d: lower that, or raise maxReceiveCount",
				q.name, limit, declared)
		}
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.limit.Known:
		b.limit = brokers.DeliveryLimit{Known: true, Max: limit}
	case limit > 0 && (b.limit.Max == 0 || limit < b.limit.Max):
		b.limit.Max = limit
	}
	return nil
}

// Close closes the open subscribers, as Subscriber.Close does, and ends publishing: running calls
// fail with brokers.ErrClosed. It may be called again, and always returns nil.
func (b *Broker) Close() error {
	b.end()
	_ = b.subscribers.Close() // never fails
	b.hang()
	return nil
}
