package official

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
	"github.com/millpond-go/millpond/internal/openset"
)

const (
	defaultConnectTimeout = 10 * time.Second
	defaultVisibility     = 30 * time.Second
	defaultWait           = 5 * time.Second
	defaultPublishTimeout = 30 * time.Second
)

// Broker is SQS, and SNS in front of it, in one account and region. It is safe for
// concurrent use.
type Broker struct {
	config  sqs.Config
	own     *sqs.Broker // finds queues and topics
	account account.Account
	aws     aws.Config
	client  *awssqs.Client // gives messages back

	subscribers openset.Set[*Subscriber]
	publishers  openset.Set[*publisher]

	// options, if not nil, adds to the clients of a subscriber. Tests cut it off with it.
	options func(*Subscriber) []func(*awssqs.Options)
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// Ping asks SQS once; see sqs.Broker.Ping.
func (b *Broker) Ping(ctx context.Context) error { return b.own.Ping(ctx) }

// New finds region and credentials, and looks at each of Config.Queues. Its errors are
// those of sqs.New, and one that names each field that has no meaning here:
// Consume.Pollers and Consume.Linger.
func New(ctx context.Context, config sqs.Config) (*Broker, error) {
	if err := validate(&config); err != nil {
		return nil, err
	}
	own, err := sqs.New(ctx, config)
	if err != nil {
		return nil, err
	}
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, defaultConnectTimeout)
	config.Consume.Visibility = cmp.Or(config.Consume.Visibility, defaultVisibility)
	config.Consume.Wait = cmp.Or(config.Consume.Wait, defaultWait)
	config.Publish.Timeout = cmp.Or(config.Publish.Timeout, defaultPublishTimeout)
	b := &Broker{config: config, own: own, account: account.Of(own)}
	b.aws = b.account.AWS()
	b.client = b.newClient()
	return b, nil
}

func (b *Broker) newClient(options ...func(*awssqs.Options)) *awssqs.Client {
	return awssqs.NewFromConfig(b.aws, b.with(options...)...)
}

// with returns the options of a client: those of the configuration, and some more.
func (b *Broker) with(options ...func(*awssqs.Options)) []func(*awssqs.Options) {
	return append(append([]func(*awssqs.Options){}, b.config.SQSOptions...), options...)
}

// Subscriber returns a new subscriber, which is a *[Subscriber]. It returns an error that
// names every invalid field, or one that wraps brokers.ErrClosed.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	config, err := config.WithDefaults("sqs/official")
	if err != nil {
		return nil, err
	}
	s := newSubscriber(b, config)
	if !b.subscribers.Add(s) {
		return nil, fmt.Errorf("sqs/official: broker: %w", brokers.ErrClosed)
	}
	return s, nil
}

// Publisher returns a new publisher, or an error that wraps brokers.ErrClosed.
func (b *Broker) Publisher(config brokers.PublisherConfig) (message.Publisher, error) {
	config = config.WithDefaults()
	p, err := newPublisher(b, config.Logger)
	if err != nil {
		return nil, err
	}
	if !b.publishers.Add(p) {
		return nil, errors.Join(fmt.Errorf("sqs/official: broker: %w", brokers.ErrClosed), p.Close())
	}
	return p, nil
}

// Capabilities says what SQS does under watermill-aws: as the capabilities of package sqs,
// but nothing extends a message's visibility, so that it is taken back when that ends.
func (b *Broker) Capabilities() brokers.Capabilities {
	can := b.own.Capabilities()
	can.SettleLimit = b.config.Consume.Visibility
	return can
}

// Close closes the subscribers that are open, as Subscriber.Close does, and then the
// publishers, which finish what they are publishing. It may be called many times.
func (b *Broker) Close() error {
	_ = b.subscribers.Close() // never fails
	_ = b.publishers.Close()  // never fails
	return b.own.Close()
}
