package middleware

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/stores"
)

// RetryPolicy says what becomes of the messages whose handler fails. Zero values mean
// the defaults of their tags.
//
// A message is tried until its budget is spent, by count or by age. Then it has failed for
// good: it is kept as a dead letter for an operator, and acked. Deadlocks, lost connections
// and unknown commits do not spend the budget; MaxUncounted bounds them.
type RetryPolicy struct {
	MaxAttempts  int           `config:"max_attempts" default:"10" check:"positive" about:"How many attempts may fail. After the last one the message fails for good and is kept as a dead letter."`
	MaxAge       time.Duration `config:"max_age" default:"24h" check:"positive" about:"How long after the first failure there may be another attempt."`
	MaxUncounted int           `config:"max_uncounted" default:"100" check:"positive" about:"How many attempts may end for reasons that are not the handler's fault."`
	// MaxImmediate bounds the runs after ClassContention. One more is a failure like any other.
	MaxImmediate int `config:"max_immediate" default:"3" check:"off" about:"How often a handler that returns contention is run again at once. Then contention counts as a failure. -1: never."`

	// Backoff sets the pauses between attempts.
	Backoff BackoffConfig `config:""`

	// Placement is stores.PlacementParked by default: the store keeps the message, the delivery
	// is acked and a [RetryWorker] makes the attempt. With stores.PlacementRedelivered the
	// delivery is nacked with a delay, and the broker's redelivery makes the attempt. Each
	// attempt spends one of the broker's deliveries: keep MaxAttempts below the broker's limit.
	Placement stores.Placement `config:"placement" default:"parked" check:"parked|redelivered" about:"Who keeps a pending message: the store (parked), so that later messages go on, or the broker (redelivered), which counts its deliveries."`

	// Order keeps messages of one order key in order when one of them fails. While it is pending,
	// later ones are parked behind it, and the retry worker runs them one after the other. Once
	// it has failed for good they go on. Order costs no round trip, and needs a broker that
	// delivers the messages of one key one at a time. "key" means [OrderByKey],
	// "metadata:<field>" means [OrderByMetadata].
	Order string `config:"order" example:"key" about:"The order key: key (the broker's, such as Kafka's) or metadata:<field>. Later messages of a key wait while an earlier one is pending. Default: no order."`
	// OrderWait begins when the redelivery is due. A message that comes later runs out of order.
	OrderWait time.Duration `config:"order_wait" default:"1h" check:"positive" about:"How long later messages of an order key wait for an overdue message that the broker has not redelivered. Then the message counts as lost."`
	// OrderKey, if set, returns the order key in place of Order. A message for which it returns
	// nil or panics (which is logged) has no order key. It must be safe for concurrent use.
	OrderKey func(*message.Message) []byte

	// Classify, if set, returns the class of a handler's error; "" leaves it to the inbox.
	// [Permanent], [Contention] and [RetryAfter] take precedence. If Classify panics (which is
	// logged) the class is stores.ClassTransient. It must be safe for concurrent use.
	Classify func(error) stores.Class
}

// BackoffConfig sets the pauses after failed attempts: Min after the first, doubled after each,
// at most Max. Each pause is random, between half of that and the whole.
type BackoffConfig struct {
	Min time.Duration `config:"backoff_min" default:"1s" check:"positive" about:"The pause after the first failure. It doubles after each failure."`
	Max time.Duration `config:"backoff_max" default:"10m" check:"positive" least:"Min" about:"The longest pause."`
}

// OrderByKey returns the broker's key of the message, such as the key of a Kafka record, as
// its order key.
func OrderByKey(msg *message.Message) []byte {
	facts, _ := brokers.DeliveryOf(msg)
	return facts.Key
}

// OrderByMetadata returns a function that returns a metadata field of the message as its
// order key.
func OrderByMetadata(field string) func(*message.Message) []byte {
	return func(msg *message.Message) []byte {
		if value := msg.Metadata.Get(field); value != "" {
			return []byte(value)
		}
		return nil
	}
}

// setOrder sets OrderKey from Order.
func (p *RetryPolicy) setOrder() {
	if p.OrderKey != nil {
		return
	}
	if name, ok := strings.CutPrefix(p.Order, "metadata:"); ok {
		p.OrderKey = OrderByMetadata(name)
	} else if p.Order == "key" {
		p.OrderKey = OrderByKey
	}
}

func (p *RetryPolicy) validate(name string, bad func(name, format string, args ...any)) {
	header, ok := strings.CutPrefix(p.Order, "metadata:")
	if p.Order != "" && p.Order != "key" && (!ok || header == "" || strings.TrimSpace(header) != header) {
		bad(name+".Order", "is %q: use key, or metadata:<field>", p.Order)
	}
}

// machine returns the policy for the deliveries.
func (p *RetryPolicy) machine() delivery.Policy {
	return delivery.Policy{
		Limits:       budget.Limits{Attempts: p.MaxAttempts, Uncounted: p.MaxUncounted, Age: p.MaxAge},
		Backoff:      budget.Backoff{Min: p.Backoff.Min, Max: p.Backoff.Max},
		MaxImmediate: p.MaxImmediate, Placement: p.Placement, OrderWait: p.OrderWait,
	}
}

// policy is the retry policy of a handler.
type policy struct {
	*RetryPolicy

	machine delivery.Policy
}

func newPolicy(p *RetryPolicy) *policy { return &policy{p, p.machine()} }

// Permanent marks an error that another attempt cannot fix: the message fails for good at once.
// nil stays nil.
func Permanent(err error) error { return budget.Mark(err, stores.ClassPermanent) }

// Contention marks an error as a lost race of optimistic locking: a row changed since the
// handler read it. The handler is run again at once, up to RetryPolicy.MaxImmediate times,
// and the attempt is not counted. nil stays nil.
func Contention(err error) error { return budget.Mark(err, stores.ClassContention) }

// Unconfirmed marks an error of a handler under a lease (see [LeaseConfig]) that does not know
// whether its effect has happened and must not be repeated. The message fails for good, with
// stores.ClassUnconfirmed, and an operator decides. nil stays nil.
func Unconfirmed(err error) error { return budget.Mark(err, stores.ClassUnconfirmed) }

// RetryAfter marks an error after which the next attempt waits at least d instead of the policy's
// backoff. The attempt counts. nil stays nil.
func RetryAfter(err error, d time.Duration) error { return budget.Delay(err, d) }

// unordered returns an error for each order key on a store that keeps no order.
func (c *InboxConfig) unordered(store Store, can stores.Capabilities) error {
	var errs []error
	wrong := func(field string) {
		errs = append(errs, fmt.Errorf("%s is set, and the store, a %T, keeps no order: leave order keys out, or use another store", field, store))
	}
	if can.OutputsUnordered && c.Outputs != nil && c.Outputs.OrderKey != nil {
		wrong("Outputs.OrderKey")
	}
	ordered := func(p *RetryPolicy) bool { return can.Unordered && (p.Order != "" || p.OrderKey != nil) }
	if ordered(&c.Retry) {
		wrong("Retry.Order")
	}
	for _, handler := range slices.Sorted(maps.Keys(c.RetryByHandler)) {
		if p := c.RetryByHandler[handler]; ordered(&p) {
			wrong(fmt.Sprintf("RetryByHandler[%q].Order", handler))
		}
	}
	return errors.Join(errs...)
}
