package outbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/middleware"
)

// atOnce is how many messages a publisher without PublishEach gets at a time, each on its own
// goroutine.
const atOnce = 8

var errMayNot = errors.New("outbox: the lease has ended")

// publish publishes a wave, in which no two messages have the same order key, and returns the
// result of each. It checks the lease before each message.
func (r *Relay) publish(ctx context.Context, to message.Publisher, wave []*item) []error {
	errs := make([]error, len(wave))
	topics := make(map[string][]int)
	for i, it := range wave {
		if it.msg, errs[i] = r.message(ctx, it); errs[i] == nil {
			topics[it.Topic] = append(topics[it.Topic], i)
		}
	}
	for topic, at := range topics {
		if each, ok := to.(brokers.EachPublisher); ok {
			r.publishEach(ctx, each, topic, wave, at, errs)
		} else {
			r.publishAlone(ctx, to, topic, wave, at, errs)
		}
	}
	return errs
}

func (r *Relay) publishEach(ctx context.Context, to brokers.EachPublisher, topic string, wave []*item, at []int, errs []error) {
	ctx, cancel := r.deadline(ctx)
	defer cancel()
	var (
		messages []*message.Message
		of       []int
	)
	for _, i := range at {
		if errs[i] = errMayNot; r.may(ctx, wave[i]) {
			wave[i].msg.SetContext(ctx)
			messages, of = append(messages, wave[i].msg), append(of, i)
		}
	}
	if len(messages) == 0 {
		return
	}
	for n, err := range ask(ctx, to, topic, messages) {
		errs[of[n]] = err
	}
}

// ask returns the result of each message. If the call fails as a whole, by a panic for example,
// each message is published alone, so that one does not fail the others.
func ask(ctx context.Context, to brokers.EachPublisher, topic string, messages []*message.Message) (answers []error) {
	err := callback.Apart("PublishEach", func() error {
		answers = to.PublishEach(ctx, topic, messages...)
		if len(answers) != len(messages) {
			return fmt.Errorf("outbox: PublishEach of a %T returned %d results for %d messages", to, len(answers), len(messages))
		}
		return nil
	})
	switch {
	case err == nil:
		return answers
	case len(messages) == 1:
		return []error{err}
	}
	answers = nil
	for _, msg := range messages {
		if ctx.Err() != nil {
			answers = append(answers, errMayNot)
		} else {
			answers = append(answers, ask(ctx, to, topic, []*message.Message{msg})...)
		}
	}
	return answers
}

func (r *Relay) publishAlone(ctx context.Context, to message.Publisher, topic string, wave []*item, at []int, errs []error) {
	var (
		busy sync.WaitGroup
		free = make(chan struct{}, atOnce)
	)
	for _, i := range at {
		free <- struct{}{}
		busy.Go(func() {
			defer func() { <-free }()
			ctx, cancel := r.deadline(ctx)
			defer cancel()
			if errs[i] = errMayNot; r.may(ctx, wave[i]) {
				wave[i].msg.SetContext(ctx)
				errs[i] = callback.Apart("Publish", func() error { return to.Publish(topic, wave[i].msg) })
			}
		})
	}
	busy.Wait()
}

func (r *Relay) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, r.leases.until(time.Now().Add(r.config.PublishTimeout)))
}

func (r *Relay) may(ctx context.Context, it *item) bool {
	return ctx.Err() == nil && r.leases.has(it.Bucket, it.term)
}

// message returns the message to publish for an output.
func (r *Relay) message(ctx context.Context, it *item) (*message.Message, error) {
	if it.Err != nil {
		return nil, it.Err
	}
	metadata, payload := it.Metadata, it.Payload
	if it.Codec != "" {
		codec := r.config.Codec
		if codec == nil || codec.Name != it.Codec {
			return nil, fmt.Errorf("outbox: codec %q is not configured", it.Codec)
		}
		var kept middleware.Kept
		err := callback.Apart("Decode", func() (err error) {
			kept, err = codec.Decode(ctx, middleware.Kept{Metadata: metadata, Payload: payload})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("outbox: codec %q: %w", it.Codec, err)
		}
		metadata, payload = kept.Metadata, kept.Payload
	}
	msg := message.NewMessage(it.ID, payload)
	if metadata != nil {
		msg.Metadata = metadata
	}
	return msg, nil
}

// IsAway reports whether a publisher's error says that its broker cannot be reached or accepts
// nothing at the moment: brokers.ErrUnavailable, ErrFull and ErrClosed, network errors, and the
// end of a context.
func IsAway(err error) bool {
	for _, away := range []error{brokers.ErrUnavailable, brokers.ErrFull, brokers.ErrClosed, context.Canceled, context.DeadlineExceeded, io.EOF, net.ErrClosed} {
		if errors.Is(err, away) {
			return true
		}
	}
	_, network := errors.AsType[net.Error](err)
	return network
}

// isFinal reports whether another attempt cannot succeed.
func isFinal(err error) bool {
	return errors.Is(err, brokers.ErrTooLarge) || errors.Is(err, brokers.ErrUnencodable)
}
