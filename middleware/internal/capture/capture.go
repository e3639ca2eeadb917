// Package capture collects what a handler publishes while its attempt is open.
package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
)

// Package outbox documents these errors.
var (
	ErrNoAttempt   = errors.New("outbox: the context of the message has no open attempt: publish messages with the context of the handler's message, behind an inbox with InboxConfig.Outputs; in a transaction of your own use the store's NewPublisher")
	ErrAttemptOver = errors.New("outbox: the handler has returned, and can publish no more messages")
)

const prefix = "millpond.outbox:"

// Name is the name under which Watermill's router knows a destination's publisher.
func Name(destination string) string { return prefix + destination }

// Destination undoes Name. It reports false for other publishers.
func Destination(name string) (string, bool) { return strings.CutPrefix(name, prefix) }

// Key is the context key of a *Run. The value is nil if the attempt takes no outputs.
type Key struct{}

// Run is one run of a handler.
type Run struct {
	make func(destination, topic string, position func(topic string, orderKey []byte) int, msg *message.Message) (stores.Output, error)

	handler, topic string // the router's names, from the handler's context

	mu        sync.Mutex
	over      bool
	outputs   []stores.Output
	positions map[place]int
}

// place is the scope in which positions of outputs are counted.
type place struct{ destination, topic, orderKey string }

// New returns a run with its handler's context. makeOutput makes an output from a message. It is
// called until the run is over, by one goroutine at a time.
func New(ctx context.Context, makeOutput func(destination, topic string, position func(topic string, orderKey []byte) int, msg *message.Message) (stores.Output, error)) *Run {
	return &Run{make: makeOutput, handler: message.HandlerNameFromCtx(ctx), topic: message.SubscribeTopicFromCtx(ctx)}
}

// From returns a context's run. If the context has travelled with a message to another handler of a
// router, it is that handler's run.
func From(ctx context.Context) (*Run, error) {
	r, _ := ctx.Value(Key{}).(*Run)
	if r == nil || r.handler != message.HandlerNameFromCtx(ctx) || r.topic != message.SubscribeTopicFromCtx(ctx) {
		return nil, ErrNoAttempt
	}
	return r, nil
}

// Publish takes all of the messages, or none.
func (r *Run) Publish(destination, topic string, messages ...*message.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return ErrAttemptOver
	}
	taken := make([]stores.Output, 0, len(messages))
	counted := make(map[place]int)
	for i, msg := range messages {
		o, err := r.make(destination, topic, func(topic string, orderKey []byte) int {
			at := place{destination, topic, string(orderKey)}
			counted[at]++
			return r.positions[at] + counted[at]
		}, msg)
		if err == nil {
			err = o.Validate()
		}
		if err != nil {
			return fmt.Errorf("outbox: publish to %q at %q, message %d of %d: %w", topic, destination, i+1, len(messages), err)
		}
		taken = append(taken, o)
	}
	if r.positions == nil {
		r.positions = counted
	} else {
		for at, n := range counted {
			r.positions[at] += n
		}
	}
	r.outputs = append(r.outputs, taken...)
	return nil
}

// Close ends the run, and returns the published outputs.
func (r *Run) Close() []stores.Output {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over, r.make = true, nil // it refers to the message
	return r.outputs
}
