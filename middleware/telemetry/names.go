package telemetry

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/stores"
)

// This file has all names of the OpenTelemetry conventions.

const (
	scope     = "github.com/millpond-go/millpond"
	schemaURL = semconv.SchemaURL
)

// The attributes that the conventions lack.
const (
	keyConsumer    = attribute.Key("millpond.consumer")       // service/handler
	keyResult      = attribute.Key("millpond.result")         // middleware.Result
	keyReason      = attribute.Key("millpond.reason")         // stores.Reason, for quarantined messages
	keyOutcome     = attribute.Key("millpond.outcome")        // stores.Outcome, of a claim
	keyRuns        = attribute.Key("millpond.runs")           // runs of the handler in one delivery
	keyAttempts    = attribute.Key("millpond.attempts")       // failed attempts that count
	keyQuestions   = attribute.Key("millpond.questions")      // claims and looks
	keyHeld        = attribute.Key("millpond.held_seconds")   //
	keyDueIn       = attribute.Key("millpond.due_in_seconds") // until the next attempt
	keyFinal       = attribute.Key("millpond.final")          // there is no next attempt
	keyCached      = attribute.Key("millpond.cached")         // a duplicate found in the cache
	keyRetry       = attribute.Key("millpond.retry")          // run by the retry worker
	keyDelivery    = attribute.Key("millpond.delivery_count") // the broker's count
	keySuspect     = attribute.Key("millpond.suspect")        // perhaps not the first delivery
	keyCoordinates = attribute.Key("millpond.coordinates")    // where the broker stores it
	keyLink        = attribute.Key("millpond.link")           // what a link points to
	keySkip        = attribute.Key("millpond.skip_reason")    // why a retry was not run
	keyBatchResult = attribute.Key("millpond.batch_result")   // of a shared transaction
	keyFate        = attribute.Key("millpond.batch_fate")     // of a message in a shared transaction
	keyDestination = attribute.Key("millpond.destination")    // of an outbox
	keyOutput      = attribute.Key("millpond.output.state")   // stores.OutputState
	keyState       = attribute.Key("millpond.connection.state")
)

// The kinds of spans that links point to.
const (
	linkMessage   = "message"      // the span that made the message
	linkCompleted = "completed_by" // the delivery that completed the message
)

func spanName(operation, destination string) string {
	if destination == "" {
		return operation
	}
	return operation + " " + cut(destination)
}

// system returns the attribute of a broker's name.
func system(name string) attribute.KeyValue { return semconv.MessagingSystemKey.String(name) }

// placed returns the attributes of a message's coordinates, for systems that the
// conventions know.
func placed(systemName string, d *brokers.Delivery) []attribute.KeyValue {
	if d.Coordinates == "" {
		return nil
	}
	if systemName == "kafka" {
		rest, offset, ok := cutLast(d.Coordinates)
		_, partition, ok2 := cutLast(rest)
		if n, err := strconv.Atoi(offset); ok && ok2 && err == nil {
			return []attribute.KeyValue{semconv.MessagingKafkaOffset(n), semconv.MessagingDestinationPartitionID(partition)}
		}
	}
	return []attribute.KeyValue{keyCoordinates.String(cut(d.Coordinates))}
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

// cut bounds texts of unknown origin, and makes them valid UTF-8.
func cut(s string) string {
	const longest = 255
	if len(s) <= longest && utf8.ValidString(s) {
		return s
	}
	s = strings.ToValidUTF8(s[:min(len(s), longest)], "")
	return s
}

// errorType returns the error.type of a failure's class. Classes of the program's classifier
// become _OTHER, because their number is unbounded.
func errorType(c stores.Class) string {
	switch c {
	case stores.ClassTransient, stores.ClassPermanent, stores.ClassContention, stores.ClassTimeout, stores.ClassPanic,
		stores.ClassConduct, stores.ClassOutputs, stores.ClassCrash, stores.ClassInterrupted, stores.ClassUnknown,
		stores.ClassOrder, stores.ClassUnreadable, stores.ClassUnconfirmed:
		return string(c)
	}
	return otherValue
}

// otherValue replaces values that would make a label unbounded.
const otherValue = "_OTHER"
