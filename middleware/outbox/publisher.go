package outbox

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/internal/capture"
	"github.com/millpond-go/millpond/stores"
)

var (
	// ErrNoAttempt: a message's context has no open attempt of an inbox with
	// InboxConfig.Outputs, so nobody can say with what it would commit. Publish messages with
	// the context of the handler's message, as cqrs buses do with the one that they are given.
	// In a transaction of your own use the publisher of your store, such as
	// postgres.NewPublisher.
	ErrNoAttempt = capture.ErrNoAttempt
	// ErrAttemptOver: the handler has returned, and its attempt is committed, or given up. A
	// goroutine that it has left behind publishes nothing.
	ErrAttemptOver = capture.ErrAttemptOver
)

// Publisher returns a publisher for what handlers behind an inbox with InboxConfig.Outputs
// say to a destination, which is one of the relay's by name. Give it to handlers of a router
// that return messages, and to cqrs buses. It is made once, and finds the open attempt by the
// context of each message: what is published is written by the commit of that attempt, and
// published by the relay then; see middleware.Outputs. Close does nothing.
//
// Errors wrap ErrNoAttempt, ErrAttemptOver, stores.ErrInvalidOutput,
// middleware.ErrUnknownDestination, ErrUnknownTopic or ErrOutputTooLarge. Of one call nothing is
// published then.
//
// The context of a message belongs to the handler that was given it. If it travels with a
// published message, in the process, to a handler of a router without an inbox, that one
// gets ErrNoAttempt. Whoever receives such a message without a router must not publish with
// its context.
func Publisher(destination string) message.Publisher { return publisher{destination} }

type publisher struct{ destination string }

// isOwn reports whether a publisher writes into the outbox, as far as it can be seen.
func isOwn(p message.Publisher) bool {
	if decorated, ok := p.(interface{ inner() message.Publisher }); ok {
		return isOwn(decorated.inner())
	}
	named, ok := p.(fmt.Stringer)
	if !ok {
		return false
	}
	_, own := capture.Destination(named.String())
	return own
}

// String is what Watermill's router takes for the publisher's name, by which the inbox knows
// it.
func (p publisher) String() string { return capture.Name(p.destination) }

// Publish implements message.Publisher.
func (p publisher) Publish(topic string, messages ...*message.Message) error {
	var run *capture.Run
	for i, msg := range messages {
		if msg == nil {
			return fmt.Errorf("outbox: publish to %q, message %d of %d: %w: the message is nil", topic, i+1, len(messages), stores.ErrInvalidOutput)
		}
		own, err := capture.From(msg.Context())
		if err == nil && run != nil && own != run {
			err = fmt.Errorf("%w: the messages before it are of another one", ErrNoAttempt)
		}
		if err != nil {
			return fmt.Errorf("outbox: publish to %q, message %d of %d: %w", topic, i+1, len(messages), err)
		}
		run = own
	}
	if run == nil {
		return nil
	}
	return run.Publish(p.destination, topic, messages...) //nolint:wrapcheck // it names the message
}

// Close implements message.Publisher.
func (publisher) Close() error { return nil }
