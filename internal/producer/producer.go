// Package producer makes Watermill publishers of what writes outputs in a transaction.
package producer

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Emit writes outputs in a transaction; locked as stores.PublisherConfig.Last says.
type Emit[Tx any] func(ctx context.Context, tx Tx, outputs []stores.Output, locked bool) error

// New returns a publisher for a transaction of a store, whose package begins errors. It is as
// safe for concurrent use as the transaction.
func New[Tx any](store string, tx Tx, c stores.PublisherConfig, emit Emit[Tx]) message.Publisher {
	return &publisher{store: store, config: c, emit: func(ctx context.Context, outputs []stores.Output) error {
		return emit(ctx, tx, outputs, c.Last)
	}}
}

// Missing returns a publisher for a caller of a store's NewPublisher who has passed nil for
// something: each Publish says so.
func Missing(store, what string) message.Publisher {
	return missing{fmt.Errorf("%s: nothing can be published: NewPublisher was given nil as the %s", store, what)}
}

type missing struct{ err error }

func (m missing) Publish(string, ...*message.Message) error { return m.err }

func (missing) Close() error { return nil }

type publisher struct {
	store  string
	config stores.PublisherConfig
	emit   func(ctx context.Context, outputs []stores.Output) error
}

// Publish writes the messages in their order, bounded by the context of the first. Nothing is
// written if one of them is no valid output.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	outputs := make([]stores.Output, len(messages))
	for i, msg := range messages {
		var err error
		if outputs[i], err = p.output(topic, msg); err != nil {
			return fmt.Errorf("%s: publish to %q, message %d of %d: %w", p.store, topic, i+1, len(messages), err)
		}
	}
	return p.emit(messages[0].Context(), outputs)
}

func (p *publisher) output(topic string, msg *message.Message) (stores.Output, error) {
	if msg == nil {
		return stores.Output{}, fmt.Errorf("%w: the message is nil", stores.ErrInvalidOutput)
	}
	o := stores.Output{ID: msg.UUID, Destination: p.config.Destination, Topic: topic, Metadata: msg.Metadata, Payload: msg.Payload}
	if o.ID == "" {
		o.ID = watermill.NewUUID()
	}
	o.TraceParent, _ = stores.ParseTraceParent(msg.Metadata.Get("traceparent"))
	if p.config.OrderKey != nil {
		o.OrderKey = p.config.OrderKey(o)
	}
	if p.config.Type != nil {
		o.Type = p.config.Type(o)
	}
	if p.config.Encode == nil {
		return o, nil
	}
	return p.config.Encode(msg.Context(), o)
}

// Close does nothing: the transaction is the caller's.
func (p *publisher) Close() error { return nil }
