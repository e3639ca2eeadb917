package publishing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
)

// Publisher is a brokers.EachPublisher on a server that answers for each message. T is a
// message as the adapter sends it.
type Publisher[T any] struct {
	Calls

	Package string        // that errors begin with
	Timeout time.Duration // of a call
	// Open makes ready for messages to a topic. Its errors are returned as they are.
	Open func(ctx context.Context, topic string) (Topic[T], error)
	// Ended ends calls; nil: only the context and Timeout do.
	Ended <-chan struct{}
}

// Topic is what messages are sent to.
type Topic[T any] interface {
	Encode(*message.Message) (T, error)
	// Send sends messages, and says what became of each. apart: a message is sent though one
	// before it was not taken.
	Send(ctx context.Context, messages []T, apart bool) []error
}

// Publish sends the messages together, and none if one cannot be encoded. The error names
// those that were not taken, or may not have been; the others were. The contexts of messages
// have no influence.
func (p *Publisher[T]) Publish(topic string, messages ...*message.Message) error {
	return p.Calls.Publish(p.Package, topic, messages, func() error {
		ctx, cancel := p.bound(context.Background())
		defer cancel()
		to, err := p.Open(ctx, topic)
		if err != nil {
			return err
		}
		all, err := Encode(p.Package, topic, messages, to.Encode)
		if err != nil {
			return err
		}
		return Failures(p.Package, topic, messages, to.Send(ctx, all, false))
	})
}

// PublishEach implements brokers.EachPublisher.
func (p *Publisher[T]) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	errs := make([]error, len(messages))
	all := func(err error) []error {
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	if !p.begin() {
		return all(fmt.Errorf("%s: publisher: %w", p.Package, brokers.ErrClosed))
	}
	defer p.underWay.Done()
	ctx, cancel := p.bound(ctx)
	defer cancel()
	to, err := p.Open(ctx, topic)
	if err != nil {
		return all(err)
	}
	var (
		encoded []T
		of      []int
	)
	for i, msg := range messages {
		if msg == nil {
			errs[i] = errors.New("the message is nil")
		} else if one, err := to.Encode(msg); err != nil {
			errs[i] = err
		} else {
			encoded, of = append(encoded, one), append(of, i)
		}
	}
	if len(encoded) > 0 {
		for n, err := range to.Send(ctx, encoded, true) {
			errs[of[n]] = err
		}
	}
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("%s: publish to %q: %w", p.Package, topic, err)
		}
	}
	return errs
}

func (p *Publisher[T]) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	if p.Ended == nil {
		return ctx, cancel
	}
	go func() {
		select {
		case <-p.Ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
