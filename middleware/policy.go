package middleware

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/middleware/internal/budget"
	"github.com/millpond-go/millpond/middleware/internal/delivery"
	"github.com/millpond-go/millpond/stores"
)

// RetryPolicy says what becomes of the messages whose handler fails. Zero values mean
// the defaults named at each field.
//
// A message is tried until its budget is spent, by count or by age, and is then
// failed: kept as a dead letter for an operator, and acked. What is not the handler's
// fault (deadlocks, lost connections, unknown commits) does not spend the budget but
// has a ceiling of its own.
type RetryPolicy struct {
	// MaxAttempts is how many attempts may fail. Default: 10; 1: no second attempt.
	MaxAttempts int
	// MaxAge is how long after the first failure an attempt may still be followed by
	// another one. Default: 24 h.
	MaxAge time.Duration
	// MaxUncounted is how many attempts may be interrupted by what is not the handler's
	// fault. Default: 100.
	MaxUncounted int

	// Backoff says how long to wait between attempts.
	Backoff BackoffConfig

	// MaxImmediate is how often an attempt that lost an optimistic-concurrency
	// conflict (ClassContention) is repeated at once before that is a failure like
	// any other. Default: 3; negative: never.
	MaxImmediate int

	// Placement says who keeps a failed message until its next attempt. Default:
	// stores.PlacementParked: the store keeps it, the delivery is acked and a
	// [RetryWorker] makes the attempt, so that messages behind it flow on.
	// stores.PlacementRedelivered: the delivery is nacked with a delay, and the
	// broker's redelivery makes the attempt. It spends one of the broker's deliveries
	// for each: keep MaxAttempts below the broker's limit.
	Placement stores.Placement

	// Classify, if set, tells the class of a handler's error; "" leaves it to the
	// inbox. [Permanent], [Contention] and [RetryAfter] come before it. If it panics the
	// class is stores.ClassTransient, and the log says so.
	Classify func(error) stores.Class

	// OrderKey, if set, keeps order beyond failures: while a message is pending, later
	// ones of the same order key are parked behind it, and the retry worker runs them
	// one after the other. A message that has failed for good lets them go. nil from
	// the function, or a panic, which is logged: this message has no order. It costs
	// no trip, and relies on a broker that delivers the messages of one key one at a
	// time. See [OrderByKey] and [OrderByMetadata].
	OrderKey func(*message.Message) []byte
	// OrderWait is how long beyond its time a message of an order key that the broker was
	// to deliver again, and did not, keeps later ones waiting. Then it is taken for lost;
	// if it comes after all it is run, out of order. Default: 1 h.
	OrderWait time.Duration
}

// BackoffConfig says how long to wait after failed attempts: Min after the first,
// doubling with each, at most Max. Each pause is left to chance between half of that and
// the whole.
type BackoffConfig struct {
	Min, Max time.Duration // default: 1 s and 10 min
}

// OrderByKey takes the broker's key of the message, such as the key of a Kafka record,
// for its order key.
func OrderByKey(msg *message.Message) []byte {
	facts, _ := brokers.DeliveryOf(msg)
	return facts.Key
}

// OrderByMetadata takes a metadata field of the message for its order key.
func OrderByMetadata(field string) func(*message.Message) []byte {
	return func(msg *message.Message) []byte {
		if value := msg.Metadata.Get(field); value != "" {
			return []byte(value)
		}
		return nil
	}
}

func (p *RetryPolicy) setDefaults() {
	setDefault(&p.MaxAttempts, 10)
	setDefault(&p.MaxAge, 24*time.Hour)
	setDefault(&p.MaxUncounted, 100)
	setDefault(&p.MaxImmediate, 3)
	setDefault(&p.Placement, stores.PlacementParked)
	setDefault(&p.OrderWait, time.Hour)
	setDefault(&p.Backoff.Min, time.Second)
	setDefault(&p.Backoff.Max, max(10*time.Minute, p.Backoff.Min))
}

func (p *RetryPolicy) validate(field string, bad func(format string, args ...any)) {
	for _, n := range []struct {
		name  string
		value int
	}{{"MaxAttempts", p.MaxAttempts}, {"MaxUncounted", p.MaxUncounted}} {
		if n.value < 0 {
			bad("%s.%s is %d: use a positive number, or 0 for the default", field, n.name, n.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"MaxAge", p.MaxAge}, {"OrderWait", p.OrderWait}, {"Backoff.Min", p.Backoff.Min}} {
		if d.value < 0 {
			bad("%s.%s is %s: use a positive duration, or 0 for the default", field, d.name, d.value)
		}
	}
	if p.Backoff.Max < p.Backoff.Min {
		bad("%s.Backoff.Max is %s, less than Backoff.Min %s: raise it", field, p.Backoff.Max, p.Backoff.Min)
	}
	switch p.Placement {
	case stores.PlacementParked, stores.PlacementRedelivered:
	default:
		bad("%s.Placement is %d: use stores.PlacementParked or stores.PlacementRedelivered", field, p.Placement)
	}
}

// machine is the policy as the deliveries know it.
func (p *RetryPolicy) machine() delivery.Policy {
	return delivery.Policy{
		Limits:       budget.Limits{Attempts: p.MaxAttempts, Uncounted: p.MaxUncounted, Age: p.MaxAge},
		Backoff:      budget.Backoff{Min: p.Backoff.Min, Max: p.Backoff.Max},
		MaxImmediate: p.MaxImmediate, Placement: p.Placement, OrderWait: p.OrderWait,
	}
}

// policy is a handler's.
type policy struct {
	*RetryPolicy

	machine delivery.Policy
}

func newPolicy(p *RetryPolicy) *policy { return &policy{p, p.machine()} }

// Permanent marks an error that trying again cannot help: the message is failed at
// once, whatever the handler met before it returned that. nil stays nil.
func Permanent(err error) error { return budget.Mark(err, stores.ClassPermanent) }

// Contention marks an error as an optimistic-concurrency conflict: somebody else has
// changed what the handler had read. The attempt is repeated at once, up to
// RetryPolicy.MaxImmediate times. nil stays nil.
func Contention(err error) error { return budget.Mark(err, stores.ClassContention) }

// RetryAfter asks that the next attempt is not made before d, instead of after the
// policy's backoff. The attempt counts. nil stays nil.
func RetryAfter(err error, d time.Duration) error { return budget.Delay(err, d) }
