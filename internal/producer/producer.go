// Package producer makes Watermill publishers of what writes outputs in a transaction.
package producer

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Publisher is a message.Publisher. It is as safe for concurrent use as the transaction.
type Publisher struct {
	Store  string // the package, which begins errors
	Config stores.PublisherConfig
	// Emit writes outputs; locked as stores.PublisherConfig.Last says.
	Emit func(ctx context.Context, outputs []stores.Output, locked bool) error
}

// Publish writes the messages in their order, bounded by the context of the first. Nothing is
// written if one of them is no valid output.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	outputs := make([]stores.Output, len(messages))
	for i, msg := range messages {
		var err error
		if outputs[i], err = p.output(topic, msg); err != nil {
			return fmt.Errorf("%s: publish to %q, message %d of %d: %w", p.Store, topic, i+1, len(messages), err)
		}
	}
	return p.Emit(messages[0].Context(), outputs, p.Config.Last)
}

func (p *Publisher) output(topic string, msg *message.Message) (stores.Output, error) {
	if msg == nil {
		return stores.Output{}, fmt.Errorf("%w: the message is nil", stores.ErrInvalidOutput)
	}
	o := stores.Output{ID: msg.UUID, Destination: p.Config.Destination, Topic: topic, Metadata: msg.Metadata, Payload: msg.Payload}
	if o.ID == "" {
		o.ID = watermill.NewUUID()
	}
	o.TraceParent, _ = stores.ParseTraceParent(msg.Metadata.Get("traceparent"))
	if p.Config.OrderKey != nil {
		o.OrderKey = p.Config.OrderKey(o)
	}
	if p.Config.Type != nil {
		o.Type = p.Config.Type(o)
	}
	if p.Config.Encode == nil {
		return o, nil
	}
	return p.Config.Encode(msg.Context(), o)
}

// Close does nothing: the transaction is the caller's.
func (p *Publisher) Close() error { return nil }
