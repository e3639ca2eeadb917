package middleware

import (
	"errors"

	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/middleware/internal/execute"
	"github.com/millpond-go/millpond/stores"
)

var (
	// ErrNotNow: the delivery is given back and has not failed. The wrapped reason is one of:
	// another delivery of the message is in flight, the store does not answer, the service shuts
	// down. Do not count it as a failure; see [OnlyFailures].
	ErrNotNow = delivery.ErrNotNow
	// ErrInFlight: another delivery of the message holds the claim. Wrapped by
	// ErrNotNow.
	ErrInFlight = delivery.ErrInFlight
	// ErrOutputs: the handler returned messages without InboxConfig.Outputs, or its publisher in
	// the router is not outbox.Publisher's. The messages would be lost if publishing failed after
	// the commit, so the attempt is rolled back and the message has failed for good.
	ErrOutputs = delivery.ErrOutputs
	// ErrUnknownDestination: the handler published to a destination that is not in
	// Outputs.Destinations. The message has failed for good.
	ErrUnknownDestination = delivery.ErrUnknownDestination
	// ErrUnknownTopic: the handler published to a topic that is not in Destination.Topics. The
	// message has failed for good.
	ErrUnknownTopic = delivery.ErrUnknownTopic
	// ErrOutputTooLarge: the handler published a message that is larger than
	// Destination.MaxBytes. The handler's message has failed for good.
	ErrOutputTooLarge = delivery.ErrOutputTooLarge
	// ErrConsumerShared: two handlers have one consumer name, so one of them would lose its
	// messages. The delivery is held for Hold.Limit and then given back with ErrNotNow.
	ErrConsumerShared = errors.New("middleware: two handlers share one consumer name")
	// ErrNoHandlerName: the message did not come through a Watermill router and
	// InboxConfig.Handler is not set. The delivery is held for Hold.Limit and then given back
	// with ErrNotNow. A message with the context of another handler's message has that handler's
	// name: set InboxConfig.Handler for an inbox without a router.
	ErrNoHandlerName = errors.New("middleware: no handler name: run the inbox on a router, or set InboxConfig.Handler")
	// ErrHandlerTimeout: the handler returned nil after its deadline. The attempt is rolled back,
	// because statements after the deadline may have failed unnoticed. Raise
	// InboxConfig.HandlerTimeout if the handler needs the time.
	ErrHandlerTimeout = delivery.ErrHandlerTimeout
	// ErrLeaseLost is the cause with which a handler's context ends when its lease was taken
	// over, was broken, or could not be renewed in time.
	ErrLeaseLost = execute.ErrLeaseLost
	// ErrAckedEarly: the handler acked the message itself, so the broker does not redeliver it.
	// If the attempt was not committed, the message is parked or, if that is impossible,
	// quarantined.
	ErrAckedEarly = delivery.ErrAckedEarly
)

// OnlyFailures reports whether err comes from a handler without an inbox. It is false for nil,
// for errors of the inbox, whose message is redelivered unless somebody acks it, and for errors
// that wrap a [PanicError]. It is the filter for Watermill's poison queue on a router that has
// handlers of both kinds:
//
//	poisonQueue, err := watermillmiddleware.PoisonQueueWithFilter(publisher, "poison", middleware.OnlyFailures)
//
// The error of Watermill's Recoverer does not wrap the panic: put the poison queue inside
// Recoverer, or add it to the handlers without an inbox only.
func OnlyFailures(err error) bool {
	_, again := errors.AsType[*delivery.GivenBackError](err)
	_, panicked := errors.AsType[*PanicError](err)
	return err != nil && !again && !panicked && !errors.Is(err, ErrNotNow) && !errors.Is(err, stores.ErrCommitUnknown)
}
