package brokers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/logger"
)

// Broker opens subscribers and publishers on one message broker. It is safe for
// concurrent use.
type Broker interface {
	// Subscriber returns a new subscriber. It keeps Watermill's contract (message.Subscriber),
	// and in addition:
	//   - at most SubscriberConfig.InFlight deliveries of one Subscribe call are
	//     in flight, neither acked nor nacked, at a time;
	//   - every message's context carries a Delivery;
	//   - a nacked message is redelivered; with Capabilities.DelayedGiveBack not before
	//     the delay of its GiveBack;
	//   - Close stops the intake, gives back deliveries that no handler has begun, waits at most
	//     DrainTimeout until the rest is acked or nacked, and then returns. It may be called
	//     many times.
	//
	// The error names every invalid field of the configuration, or wraps ErrClosed. After Close,
	// Subscribe returns an error that wraps ErrClosed.
	Subscriber(SubscriberConfig) (message.Subscriber, error)

	// Publisher returns a new publisher, which is safe for concurrent use. Publish returns nil
	// only if the broker stores every message as durably as it can. Otherwise its error wraps
	// ErrUnavailable, ErrTooLarge, ErrUnencodable, ErrFull or ErrClosed if one of them is the
	// reason.
	Publisher(PublisherConfig) (message.Publisher, error)

	// Capabilities returns what this server does, not only what it accepts.
	Capabilities() Capabilities

	// Close closes what the broker opened itself. Close its subscribers and publishers first.
	io.Closer
}

// Pinger is implemented by brokers that can check whether their server answers.
type Pinger interface {
	// Ping asks the server once, and changes nothing. The error wraps ErrUnavailable if the server
	// does not answer before ctx ends.
	Ping(ctx context.Context) error
}

// Receiver is implemented by subscribers that know whether they can receive messages.
type Receiver interface {
	// Receiving returns nil while messages can reach every Subscribe call, when there is none, and
	// after Close. Otherwise the error wraps ErrUnavailable and says why, such as a lost connection
	// or a group that removed this member. It does no I/O.
	Receiving() error
}

// EachPublisher is implemented by publishers that return a result for each message of a call.
type EachPublisher interface {
	message.Publisher
	// PublishEach publishes independent messages. For each it returns nil if the broker stores it,
	// or an error as Publish does. It also returns a result for each when ctx ends; then a message
	// with ErrUnavailable may still be stored.
	PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error
}

// SubscriberConfig configures a subscriber of any broker.
type SubscriberConfig struct {
	// Group names the group of subscribers that share a topic's messages: each
	// message goes to one of them. Other groups get their own copy. Required.
	Group string

	// InFlight is how many deliveries of one Subscribe call may be in flight at a time.
	// Zero means 1, which keeps the broker's order.
	InFlight int

	// DrainTimeout bounds how long Close waits for deliveries in flight. Zero means 30
	// seconds.
	DrainTimeout time.Duration

	Logger watermill.LoggerAdapter // nil: no logs
}

const defaultDrainTimeout = 30 * time.Second

// WithDefaults returns the configuration with defaults for zero values. The error names every
// invalid field and begins with pkg. It is for adapters. A panic of the Logger loses only that log
// line.
func (c SubscriberConfig) WithDefaults(pkg string) (SubscriberConfig, error) {
	var errs []error
	if c.Group == "" {
		errs = append(errs, fmt.Errorf("%s: SubscriberConfig.Group is empty: name the group that shares the messages", pkg))
	}
	if c.InFlight < 0 {
		errs = append(errs, fmt.Errorf("%s: SubscriberConfig.InFlight is %d: use a positive number, or 0 for 1", pkg, c.InFlight))
	}
	if c.DrainTimeout < 0 {
		errs = append(errs, fmt.Errorf("%s: SubscriberConfig.DrainTimeout is %s: use a positive duration, or 0 for %s", pkg, c.DrainTimeout, defaultDrainTimeout))
	}
	c.InFlight = cmp.Or(c.InFlight, 1)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, defaultDrainTimeout)
	c.Logger = withoutPanics(c.Logger)
	return c, errors.Join(errs...)
}

// PublisherConfig configures a publisher of any broker.
type PublisherConfig struct {
	Logger watermill.LoggerAdapter // nil: no logs
}

// WithDefaults returns the configuration with defaults for zero values. It is for adapters. A panic
// of the Logger loses only that log line.
func (c PublisherConfig) WithDefaults() PublisherConfig {
	c.Logger = withoutPanics(c.Logger)
	return c
}

// Capabilities describes how a broker handles deliveries. The zero value promises nothing.
type Capabilities struct {
	System string // the OpenTelemetry name of the messaging system, "memory" for the built-in

	NativeID      bool // Delivery.NativeID is set
	Coordinates   bool // Delivery.Coordinates is set
	Key           bool // Delivery.Key is set, for messages that were published with one
	DeliveryCount bool // Delivery.Count is exact, across processes
	Time          bool // Delivery.Time is set, by the broker's clock
	Ordered       bool // with InFlight 1, messages of one ordering unit arrive in the order of publishing

	// DeliveryLimit is how often a message is delivered before the broker drops or dead-letters it.
	DeliveryLimit DeliveryLimit

	FreeGiveBack    bool // a nack for "not now" does not count towards the delivery limit
	DelayedGiveBack bool // a nack with a delay is honored

	// SettleLimit is how long a delivery may be in flight before the broker redelivers it, as if
	// its consumer had died. Zero: as long as the consumer lives.
	SettleLimit time.Duration

	ReplayHorizon ReplayHorizon
}

// ReplayHorizon is how old an acked message may be when a broker delivers it again, because of its
// retention or a reset of offsets.
type ReplayHorizon struct {
	Known bool          // false: it depends on the topic, which the adapter does not read
	Max   time.Duration // 0, if Known: acked messages are not delivered again
}

// DeliveryLimit is a broker's limit of deliveries per message.
type DeliveryLimit struct {
	Known bool // false: the broker may have a limit, which cannot be read
	Max   int  // 0, if Known: no limit
}

// withoutPanics returns a logger that adapters can call from any goroutine. It logs nothing if l is
// nil.
func withoutPanics(l watermill.LoggerAdapter) watermill.LoggerAdapter {
	switch l.(type) {
	case nil:
		return watermill.NopLogger{}
	case watermill.NopLogger, *logger.Logger:
		return l
	}
	return &logger.Logger{Inner: l, Around: logger.Quietly}
}
