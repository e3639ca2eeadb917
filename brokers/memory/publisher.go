package memory

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

type publisher struct {
	broker *Broker
	open   context.Context // ended by Close, and when the broker closes
	end    context.CancelFunc
}

// Publish stores copies of the messages in their order. If one is refused, the earlier ones are
// stored and the later ones are not. A message's context bounds only the wait for a place. Errors
// wrap brokers.ErrClosed or brokers.ErrFull; the latter also wraps the context's error if that
// ended the wait.
func (p *publisher) Publish(topic string, messages ...*message.Message) error {
	t, err := p.broker.topic(topic)
	if err != nil {
		return err
	}
	for i, msg := range messages {
		if msg == nil {
			err = errNil
		} else {
			err = p.publish(msg.Context(), t, msg)
		}
		if err != nil {
			return fmt.Errorf("memory: publish to %q, message %d of %d: %w", topic, i+1, len(messages), err)
		}
	}
	return nil
}

// PublishEach implements brokers.EachPublisher.
func (p *publisher) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	errs := make([]error, len(messages))
	t, failed := p.broker.topic(topic)
	for i, msg := range messages {
		err := failed
		switch {
		case err != nil:
		case msg == nil:
			err = errNil
		default:
			err = p.publish(ctx, t, msg)
		}
		if err != nil {
			errs[i] = fmt.Errorf("memory: publish to %q: %w", topic, err)
		}
	}
	return errs
}

var errNil = errors.New("the message is nil")

func (p *publisher) publish(ctx context.Context, t *topic, msg *message.Message) error {
	e := newEntry(msg, p.broker.id+"-"+strconv.FormatUint(p.broker.published.Add(1), 10), p.broker.config.KeyMetadata)
	for {
		if p.open.Err() != nil {
			return brokers.ErrClosed
		}
		room := t.publish(e)
		if room == nil {
			return nil
		}
		if p.broker.config.FailWhenFull {
			return brokers.ErrFull
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", brokers.ErrFull, context.Cause(ctx))
		case <-p.open.Done():
		}
	}
}

// Close ends waiting calls of Publish. It may be called again.
func (p *publisher) Close() error {
	p.end()
	return nil
}
