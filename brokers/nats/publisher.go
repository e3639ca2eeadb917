package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/publishing"
)

// publisher waits until the stream has stored each message. Errors wrap brokers.ErrClosed,
// [ErrTopic], [ErrNoStream], [ErrTooLarge], or brokers.ErrUnavailable if the server did not answer
// within Publish.Timeout.
type publisher struct {
	publishing.Publisher[*natsgo.Msg]

	broker *Broker
}

func newPublisher(b *Broker) *publisher {
	p := &publisher{broker: b}
	p.Package, p.Timeout = pkg, b.config.Publish.Timeout
	p.Open = func(_ context.Context, topic string) (publishing.Topic[*natsgo.Msg], error) {
		if !validSubject(topic) {
			return nil, fmt.Errorf("%w: %q", ErrTopic, topic)
		}
		return &outlet{p, topic}, nil
	}
	return p
}

// outlet is a subject to publish to.
type outlet struct {
	*publisher
	subject string
}

// Encode implements publishing.Topic.
func (o *outlet) Encode(msg *message.Message) (*natsgo.Msg, error) {
	return encode(o.subject, msg, o.broker.config.Publish.MsgID)
}

// Send implements publishing.Topic.
func (o *outlet) Send(ctx context.Context, messages []*natsgo.Msg, _ bool) []error {
	errs := o.send(ctx, messages)
	if !errors.Is(errors.Join(errs...), ErrNoStream) || !o.broker.config.CreateStreams {
		return errs
	}
	_, err := o.broker.stream(ctx, o.subject)
	if err == nil {
		return o.sendAgain(ctx, messages, errs)
	}
	for i := range errs {
		if errors.Is(errs[i], ErrNoStream) {
			errs[i] = err
		}
	}
	return errs
}

// send publishes messages, and returns each one's result.
func (p *publisher) send(ctx context.Context, messages []*natsgo.Msg) []error {
	errs := make([]error, len(messages))
	futures := make([]jetstream.PubAckFuture, len(messages))
	// The client allows some thousands of outstanding messages. Beyond that wait as long as ctx,
	// not only the client's 200 ms.
	deadline, _ := ctx.Deadline()
	for i, msg := range messages {
		if errs[i] = context.Cause(ctx); errs[i] == nil {
			futures[i], errs[i] = p.broker.js.PublishMsgAsync(msg, jetstream.WithStallWait(max(time.Until(deadline), time.Millisecond)))
		}
	}
	for i, future := range futures {
		if errs[i] == nil {
			select {
			case <-future.Ok():
				continue
			case errs[i] = <-future.Err():
			case <-ctx.Done():
				errs[i] = context.Cause(ctx)
			case <-p.broker.ended:
				errs[i] = natsgo.ErrConnectionClosed
			}
		}
		errs[i] = p.explain(errs[i])
	}
	return errs
}

// sendAgain sends messages that found no stream again, after one was created.
func (p *publisher) sendAgain(ctx context.Context, messages []*natsgo.Msg, errs []error) []error {
	var again []*natsgo.Msg
	var places []int
	for i, err := range errs {
		if errors.Is(err, ErrNoStream) {
			again, places = append(again, messages[i]), append(places, i)
		}
	}
	for i, err := range p.send(ctx, again) {
		errs[places[i]] = err
	}
	return errs
}

func (p *publisher) explain(err error) error {
	select {
	case <-p.broker.ended:
		return fmt.Errorf("%w: %w", brokers.ErrClosed, err)
	default:
	}
	switch {
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: create a stream for it, or set create_streams=true", ErrNoStream)
	case isTooLarge(err):
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case errors.Is(err, natsgo.ErrMaxPayload):
		return fmt.Errorf("%w: the server's max_payload is %d bytes", ErrTooLarge, p.broker.conn.MaxPayload())
	}
	return unavailable(err)
}

// isTooLarge reports whether the server says that the message, or its headers, exceed the stream's
// limit.
func isTooLarge(err error) bool {
	const headers, message = 10097, 10054
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == headers || api.ErrorCode == message)
}
