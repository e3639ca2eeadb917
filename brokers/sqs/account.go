package sqs

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/brokers/sqs/internal/account"
)

func init() {
	account.Of = func(b brokers.Broker) account.Account { return accountOf{b.(*Broker)} }
}

// accountOf gives package official access to a broker.
type accountOf struct{ broker *Broker }

func (a accountOf) AWS() aws.Config { return a.broker.aws }

func (a accountOf) Source(ctx context.Context, topic, group string) (account.Queue, error) {
	q, err := a.broker.source(ctx, a.broker.sqs, topic, group)
	if err != nil {
		return account.Queue{}, err
	}
	return account.Queue{Name: q.name, URL: q.url, FIFO: q.fifo, Found: q}, nil
}

func (a accountOf) Read(q account.Queue, group string) (unread func(), err error) {
	found := q.Found.(*queue)
	if err := a.broker.read(found, group); err != nil {
		return nil, err
	}
	return func() { a.broker.unread(found) }, nil
}

func (a accountOf) Destination(ctx context.Context, topic string) (account.Destination, error) {
	p := newPublisher(a.broker, watermill.NopLogger{})
	found, err := p.target(ctx, topic)
	if err != nil {
		return account.Destination{}, err
	}
	d := account.Destination{
		Encode: func(msg *message.Message) (account.Outgoing, error) {
			o, err := p.outgoing(found, msg)
			if err != nil {
				return account.Outgoing{}, err
			}
			return account.Outgoing{Body: o.body, Attributes: o.attributes, Group: o.group, Deduplication: o.deduplication}, nil
		},
		Lost: func() {},
	}
	switch t := found.(type) {
	case *queueTarget:
		d.URL, d.Lost = t.queue.url, func() { a.broker.forget(t.queue) }
	case *topicTarget:
		d.ARN = t.arn
	}
	return d, nil
}

func (a accountOf) Decode(topic string, q account.Queue, m *types.Message) (*message.Message, brokers.Delivery) {
	return newItem(q.Found.(*queue), *m, time.Now(), 0).read(topic, a.broker.config.Consume.Unmarshal)
}

func (a accountOf) Explain(action string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqs: %w", explain(action, err))
}
