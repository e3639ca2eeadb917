package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/brokers"
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

// pause is how long to wait after so many failures.
func (p *RetryPolicy) pause(failures int) time.Duration {
	pause := p.Backoff.Min
	for n := 1; n < failures && pause < p.Backoff.Max; n++ {
		if pause > p.Backoff.Max/2 { // so that it never overflows
			pause = p.Backoff.Max
			break
		}
		pause *= 2
	}
	return jitter(pause)
}

// Permanent marks an error that trying again cannot help: the message is failed at
// once, whatever the handler met before it returned that. nil stays nil.
func Permanent(err error) error { return mark(err, stores.ClassPermanent) }

// Contention marks an error as an optimistic-concurrency conflict: somebody else has
// changed what the handler had read. The attempt is repeated at once, up to
// RetryPolicy.MaxImmediate times. nil stays nil.
func Contention(err error) error { return mark(err, stores.ClassContention) }

// RetryAfter asks that the next attempt is not made before d, instead of after the
// policy's backoff. The attempt counts. nil stays nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, max(d, 0)}
}

func mark(err error, class stores.Class) error {
	if err == nil {
		return nil
	}
	return &classifiedError{err, class}
}

type classifiedError struct {
	error

	class stores.Class
}

func (e *classifiedError) Unwrap() error { return e.error }

type retryAfterError struct {
	error

	after time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// classify tells the class of an error that ended an attempt, or else otherwise.
func (p *RetryPolicy) classify(err error, otherwise stores.Class) (class stores.Class) {
	if marked, ok := errors.AsType[*classifiedError](err); ok {
		return marked.class
	}
	if p.Classify != nil {
		if class := p.Classify(err); class != "" {
			return class
		}
	}
	switch {
	case errors.Is(err, ErrOutputs):
		return stores.ClassOutputs
	case errors.Is(err, errPanicked):
		return stores.ClassPanic
	case errors.Is(err, ErrHandlerTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, stores.ErrTxExpired):
		return stores.ClassTimeout
	case errors.Is(err, stores.ErrTxEnded), errors.Is(err, stores.ErrTxBusy), errors.Is(err, stores.ErrReentered), errors.Is(err, stores.ErrTxManaged),
		errors.Is(err, ErrForeignTx):
		return stores.ClassConduct
	}
	return otherwise
}

// counts reports whether attempts that end so spend the budget.
func counts(class stores.Class) bool {
	return class != stores.ClassInterrupted && class != stores.ClassUnknown
}

// verdict decides whether another attempt follows one that ended with class. The
// numbers include it. The reason is for people, if none follows.
func (p *RetryPolicy) verdict(class stores.Class, attempts, uncounted int, age time.Duration) (again bool, reason string) {
	switch {
	case class == stores.ClassPermanent:
		return false, "a permanent error"
	case class == stores.ClassOutputs:
		return false, "a handler that returns messages"
	case counts(class) && attempts >= p.MaxAttempts:
		return false, fmt.Sprintf("%d of %d attempts failed", attempts, p.MaxAttempts)
	case !counts(class) && uncounted >= p.MaxUncounted:
		return false, fmt.Sprintf("%d of %d attempts were interrupted", uncounted, p.MaxUncounted)
	case age >= p.MaxAge:
		return false, fmt.Sprintf("the first failure was %s ago, at most %s are allowed", age.Round(time.Second), p.MaxAge)
	}
	return true, ""
}
