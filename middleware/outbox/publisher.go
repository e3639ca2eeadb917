package outbox

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware/internal/capture"
	"github.com/millpond-go/millpond/stores"
)

var (
	// ErrNoAttempt: the message's context has no open attempt of an inbox with
	// InboxConfig.Outputs, so there is no transaction to commit the message with. Publish
	// messages with the context of the handler's message, as cqrs buses do. In a transaction of
	// your own use the publisher of your store, such as postgres.NewPublisher.
	ErrNoAttempt = capture.ErrNoAttempt
	// ErrAttemptOver: the handler has returned, and its attempt is committed or rolled back. A
	// goroutine that it left behind cannot publish.
	ErrAttemptOver = capture.ErrAttemptOver
)

// Publisher returns a publisher for handlers behind an inbox with InboxConfig.Outputs. Its
// destination is the name of a publisher of the relay. Give it to handlers of a router that
// return messages, and to cqrs buses. It is made once, and finds the open attempt in the context
// of each message: the attempt's commit writes the messages, and the relay publishes them
// afterwards; see middleware.Outputs. Close does nothing.
//
// Errors wrap ErrNoAttempt, ErrAttemptOver, stores.ErrInvalidOutput,
// middleware.ErrUnknownDestination, ErrUnknownTopic or ErrOutputTooLarge. After an error, no
// message of the call is published.
//
// The context of a message belongs to the handler that got it. If it travels with a published
// message, within the process, to a handler of a router without an inbox, that handler gets
// ErrNoAttempt. Code that receives such a message without a router must not publish with its
// context.
func Publisher(destination string) message.Publisher { return publisher{destination} }

type publisher struct{ destination string }

// isOwn reports whether a publisher writes to the outbox, as far as can be seen.
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

// String returns the name by which Watermill's router and the inbox know the publisher.
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
