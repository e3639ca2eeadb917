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

// This file has all names of OpenTelemetry's conventions.

const (
	scope     = "github.com/millpond-go/millpond"
	schemaURL = semconv.SchemaURL
)

// The attributes that the conventions do not have.
const (
	keyConsumer    = attribute.Key("millpond.consumer")       // service/handler
	keyResult      = attribute.Key("millpond.result")         // middleware.Result
	keyReason      = attribute.Key("millpond.reason")         // stores.Reason, of the quarantine
	keyOutcome     = attribute.Key("millpond.outcome")        // stores.Outcome, of a claim
	keyRuns        = attribute.Key("millpond.runs")           // of the handler, for one delivery
	keyAttempts    = attribute.Key("millpond.attempts")       // that count as failed
	keyQuestions   = attribute.Key("millpond.questions")      // to the store, claims and looks
	keyHeld        = attribute.Key("millpond.held_seconds")   //
	keyDueIn       = attribute.Key("millpond.due_in_seconds") // until the next attempt
	keyFinal       = attribute.Key("millpond.final")          // there is none
	keyCached      = attribute.Key("millpond.cached")         // a duplicate that the process knew
	keyRetry       = attribute.Key("millpond.retry")          // run by the retry worker
	keyDelivery    = attribute.Key("millpond.delivery_count") // as the broker counts
	keySuspect     = attribute.Key("millpond.suspect")        // perhaps not the first delivery
	keyCoordinates = attribute.Key("millpond.coordinates")    // where the broker stores it
	keyLink        = attribute.Key("millpond.link")           // what a link points to
	keySkip        = attribute.Key("millpond.skip_reason")    // of a retry that was not run
	keyBatchResult = attribute.Key("millpond.batch_result")   // of a shared transaction
	keyFate        = attribute.Key("millpond.batch_fate")     // of a message in one
	keyDestination = attribute.Key("millpond.destination")    // of an outbox
	keyOutput      = attribute.Key("millpond.output.state")   // stores.OutputState
	keyState       = attribute.Key("millpond.connection.state")
)

// What links point to.
const (
	linkMessage   = "message"      // the span in which the message was made
	linkCompleted = "completed_by" // the delivery that did the work
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

// errorType returns the error.type of a failure's class. Classes of the program's
// classifier are _OTHER, because there may be any number of them.
func errorType(c stores.Class) string {
	switch c {
	case stores.ClassTransient, stores.ClassPermanent, stores.ClassContention, stores.ClassTimeout, stores.ClassPanic,
		stores.ClassConduct, stores.ClassOutputs, stores.ClassCrash, stores.ClassInterrupted, stores.ClassUnknown,
		stores.ClassOrder, stores.ClassUnreadable, stores.ClassUnconfirmed:
		return string(c)
	}
	return otherValue
}

// otherValue stands for values that would make a label unbounded.
const otherValue = "_OTHER"
