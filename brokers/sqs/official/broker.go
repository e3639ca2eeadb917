package official

import (
	"cmp"
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs"
	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
	"github.com/millpond-go/millpond/internal/wrapped"
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
	open    wrapped.Set
}

var (
	_ brokers.Broker = (*Broker)(nil)
	_ brokers.Pinger = (*Broker)(nil)
)

// Ping sends one request to SQS; see sqs.Broker.Ping.
func (b *Broker) Ping(ctx context.Context) error { return b.own.Ping(ctx) }

// New finds region and credentials, and looks up each of Config.Queues. Its errors are those of
// sqs.New, and one that names each field without a meaning here: Consume.Pollers and
// Consume.Linger.
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
	return &Broker{config: config, own: own, account: account.Of(own), open: wrapped.Set{Package: "sqs/official"}}, nil
}

// Subscriber returns a new subscriber. The error names every invalid field, or wraps
// brokers.ErrClosed. The errors of Subscribe are those of package sqs.
func (b *Broker) Subscriber(config brokers.SubscriberConfig) (message.Subscriber, error) {
	find := func(ctx context.Context, topic, group string) (account.Queue, error) {
		ctx, cancel := context.WithTimeout(ctx, b.config.ConnectTimeout)
		defer cancel()
		return b.account.Source(ctx, topic, group)
	}
	return b.open.Subscriber(config, &wrapped.Subscriber{
		Notice: "Nothing extends the visibility of a message: handler, claim, commit and hold must fit into it; sqs:// extends it",
		Initialize: func(ctx context.Context, topic string) error {
			_, err := find(ctx, topic, config.Group)
			return err
		},
		Source: func(topic string, config brokers.SubscriberConfig) (wrapped.Source, error) {
			q, err := find(context.Background(), topic, config.Group)
			if err != nil {
				return nil, err
			}
			unread, err := b.account.Read(q, config.Group)
			if err != nil {
				return nil, err
			}
			return &source{account: b.account, config: &b.config, subscriber: config, topic: topic, queue: q, unread: unread}, nil
		},
	})
}

// Capabilities describes SQS with watermill-aws. They are those of package sqs, but nothing extends
// a message's visibility: when it ends the message is redelivered.
func (b *Broker) Capabilities() brokers.Capabilities {
	can := b.own.Capabilities()
	can.SettleLimit = b.config.Consume.Visibility
	return can
}

// Close closes the open subscribers, as Subscriber.Close does, and then the publishers, which
// finish their running calls. It may be called again.
func (b *Broker) Close() error {
	b.open.Close()
	return b.own.Close()
}
