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
)

// Broker opens subscribers and publishers on one message broker. It is safe for
// concurrent use.
type Broker interface {
	// Subscriber returns a new subscriber. It obeys Watermill's contract
	// (message.Subscriber), and besides:
	//   - at most SubscriberConfig.InFlight deliveries of one Subscribe call are
	//     unsettled at a time;
	//   - every message's context carries a Delivery;
	//   - a nacked message comes again, not before the delay set by GiveBack if
	//     DelayedGiveBack is among the capabilities;
	//   - Close stops the intake, gives back what no handler has begun, waits for
	//     the rest to be settled, at most DrainTimeout, and only then returns.
	//     It may be called many times.
	Subscriber(SubscriberConfig) (message.Subscriber, error)

	// Publisher returns a new publisher. Publish returns nil only if the broker
	// has taken every message as durably as it can.
	Publisher(PublisherConfig) (message.Publisher, error)

	// Capabilities says what this server does, not what it accepts.
	Capabilities() Capabilities

	// Close ends what the broker itself has opened. Subscribers and publishers
	// should be closed before.
	io.Closer
}

// Pinger is implemented by brokers that can be asked whether their server answers.
type Pinger interface {
	// Ping asks the server once; the error wraps ErrUnavailable if it does not answer
	// before ctx ends. It changes nothing.
	Ping(ctx context.Context) error
}

// Receiver is implemented by subscribers that know whether their broker still counts on them.
type Receiver interface {
	// Receiving returns nil while messages can reach every Subscribe call, and otherwise
	// why they cannot: the group has thrown it out, the connection is lost. It does no I/O,
	// and wraps ErrUnavailable. That there are no messages is no reason.
	Receiving() error
}

// SubscriberConfig is what every broker's subscriber understands.
type SubscriberConfig struct {
	// Group names the group of subscribers that share a topic's messages: each
	// message goes to one of them. Other groups get their own copy. Required.
	Group string

	// InFlight is how many deliveries of one Subscribe call may be unsettled at a
	// time. Zero means 1, which keeps the broker's order.
	InFlight int

	// DrainTimeout bounds how long Close waits for unsettled deliveries. Zero means
	// 30 seconds.
	DrainTimeout time.Duration

	Logger watermill.LoggerAdapter // nil: no logs
}

const defaultDrainTimeout = 30 * time.Second

// WithDefaults returns the configuration with its defaults in place of zero values, and
// an error that names every invalid field. It is for adapters; their errors begin with
// the name of the package. A panic of its Logger costs a line of the log and nothing else.
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

// PublisherConfig is what every broker's publisher understands.
type PublisherConfig struct {
	Logger watermill.LoggerAdapter // nil: no logs
}

// WithDefaults returns the configuration with its defaults in place of zero values. It is
// for adapters. A panic of its Logger costs a line of the log and nothing else.
func (c PublisherConfig) WithDefaults() PublisherConfig {
	c.Logger = withoutPanics(c.Logger)
	return c
}

// Capabilities describes what a broker does with deliveries. The zero value
// promises nothing.
type Capabilities struct {
	System string // the OpenTelemetry name of the messaging system, "memory" for the built-in

	NativeID      bool // Delivery.NativeID is set
	Coordinates   bool // Delivery.Coordinates is set
	Key           bool // Delivery.Key is set, for messages that were published with one
	DeliveryCount bool // Delivery.Count is exact, across processes
	Time          bool // Delivery.Time is set, by the broker's clock
	Ordered       bool // with InFlight 1, messages of one ordering unit arrive in the order of publishing

	// DeliveryLimit is how often a message is delivered before the broker drops or
	// dead-letters it.
	DeliveryLimit DeliveryLimit

	FreeGiveBack    bool // a nack for "not now" does not count towards the delivery limit
	DelayedGiveBack bool // a nack with a delay is honoured

	// SettleLimit is the time after which the broker takes an unsettled delivery back
	// as if its consumer had died. Zero: never, as long as the consumer lives.
	SettleLimit time.Duration

	ReplayHorizon ReplayHorizon
}

// ReplayHorizon is how far back a broker may deliver a settled message again, by
// retention or a reset of offsets.
type ReplayHorizon struct {
	Known bool          // false: a matter of each topic, which the adapter does not read
	Max   time.Duration // 0: not beyond its redeliveries, if Known
}

// DeliveryLimit is a broker's limit of deliveries per message.
type DeliveryLimit struct {
	Known bool // false: the broker may have a limit that cannot be read
	Max   int  // 0: unlimited, if Known
}
