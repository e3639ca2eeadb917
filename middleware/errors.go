package middleware

import (
	"errors"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/stores"
)

var (
	// ErrNotNow: this delivery was given back without having failed: another one
	// runs, the store cannot be asked, or the service shuts down. It wraps a more
	// exact error. Such errors must not be counted as failures or poison the
	// message; see [OnlyFailures].
	ErrNotNow = delivery.ErrNotNow
	// ErrInFlight: another delivery of the message holds the claim. Wrapped by
	// ErrNotNow.
	ErrInFlight = delivery.ErrInFlight
	// ErrOutputs: the handler returned messages. They would be lost if publishing
	// failed after the commit, so the attempt is rolled back and the message failed
	// at once. Use consumer handlers behind the inbox, and write what is to be
	// published to a table of the handler's own transaction.
	ErrOutputs = delivery.ErrOutputs
	// ErrConsumerShared: two handlers would count their effects under one consumer
	// name, and one of them would lose its messages. Wrapped by ErrNotNow, after Hold.Limit.
	ErrConsumerShared = errors.New("middleware: two handlers share one consumer name")
	// ErrNoHandlerName: the message did not come through a Watermill router and
	// InboxConfig.Handler is not set. Wrapped by ErrNotNow, after Hold.Limit. A message that
	// was made with the context of another one's handler has that one's name, which cannot
	// be told from its own: set InboxConfig.Handler for an inbox without a router.
	ErrNoHandlerName = errors.New("middleware: no handler name: run the inbox on a router, or set InboxConfig.Handler")
	// ErrHandlerTimeout: the handler returned nil after its deadline. Statements that it
	// sent since may have been refused, and their errors hidden, so the attempt is
	// rolled back. Raise InboxConfig.HandlerTimeout if the time is needed.
	ErrHandlerTimeout = delivery.ErrHandlerTimeout
	// ErrAckedEarly: the handler acked the message itself, so the broker will not
	// deliver it again. If the attempt was not committed the message is parked, or in
	// quarantine if it cannot be.
	ErrAckedEarly = delivery.ErrAckedEarly
)

// OnlyFailures reports whether err is a failure that nobody has taken care of. Those that
// the inbox returns are none: the delivery was given back, unharmed or with its attempt on
// record, and the message will come again, unless somebody acks it. So it is false for
// them, for a [PanicError] and for what wraps one, and true for the errors of handlers
// without an inbox. It is the filter for Watermill's poison queue, where a router has both:
//
//	poisonQueue, err := watermillmiddleware.PoisonQueueWithFilter(publisher, "poison", middleware.OnlyFailures)
//
// Watermill's Recoverer makes an error of a panic that does not wrap it: put the poison
// queue inside of it, or on the handlers without an inbox alone.
func OnlyFailures(err error) bool {
	_, again := errors.AsType[*delivery.GivenBackError](err)
	_, panicked := errors.AsType[*PanicError](err)
	return err != nil && !again && !panicked && !errors.Is(err, ErrNotNow) && !errors.Is(err, stores.ErrCommitUnknown)
}
