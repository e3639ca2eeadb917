package wrapped

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/publishing"
)

// Publisher is a message.Publisher. Its fields are set once.
type Publisher struct {
	Timeout time.Duration
	Logger  watermill.LoggerAdapter

	Check   func(topic string, msg *message.Message) error // of each, before one is sent; may be nil
	Send    func(ctx context.Context, topic string, messages []*message.Message) error
	Library func() error // closes it

	broker *Set
	calls  publishing.Calls
	once   sync.Once
}

// Publish sends the messages one after the other. After an error the messages before the
// failed one were sent, and the failed one may have been. Errors are those of Send, or wrap
// brokers.ErrClosed, or wrap brokers.ErrUnavailable if the library has not answered within
// Timeout: then the library cannot be stopped, and may still send the messages.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	return p.calls.Publish(p.broker.Package, topic, messages, func() error {
		own, err := publishing.Encode(p.broker.Package, topic, messages, func(msg *message.Message) (*message.Message, error) {
			own := message.NewMessage(msg.UUID, bytes.Clone(msg.Payload)) // the caller may change its own after Timeout
			maps.Copy(own.Metadata, msg.Metadata)
			if p.Check == nil {
				return own, nil
			}
			return own, p.Check(topic, own)
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), p.Timeout)
		defer cancel()
		err = Ask(ctx, func() error { return p.Send(ctx, topic, own) })
		if ctx.Err() != nil && err == context.Cause(ctx) { //nolint:errorlint // Ask's own
			return fmt.Errorf("%s: publish to %q: %w: not confirmed within %s: publish again", p.broker.Package, topic, brokers.ErrUnavailable, p.Timeout)
		}
		return err
	})
}

// Close waits for the calls of Publish under way, and closes the library. It may be called
// many times and always returns nil.
func (p *Publisher) Close() error {
	_ = p.calls.Close() // never fails
	p.once.Do(func() {
		leave(p.Library, p.Logger)
		p.broker.publishers.Remove(p)
	})
	return nil
}
