package delivery

import (
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/stores"
)

// Result says how a delivery ended in the inbox.
type Result string

// Package middleware documents the results.
const (
	Completed   Result = "completed"
	Duplicate   Result = "duplicate"
	Quarantined Result = "quarantined"
	Parked      Result = "parked"
	GivenBack   Result = "given_back"
	Failed      Result = "failed"
	Final       Result = "final"
	Panicked    Result = "panicked"
	NotNow      Result = "not_now"
)

// End says how a delivery ended.
type End struct {
	Result  Result
	Reason  stores.Reason // why it is in quarantine
	Outcome stores.Outcome
	Verdict stores.Verdict
	Cached  bool // a duplicate, known without asking the store
	Unsure  bool // its last commit had an unknown outcome
	Runs    int

	Unfinished bool // a suspect that no earlier delivery finished

	// About the failure.
	Class    stores.Class
	Attempts int
	DueIn    time.Duration
	Final    bool

	Held time.Duration
	Err  error // for people

	Up    error         // what the router gets; nil: it acks
	Back  GiveBack      // how the broker gets it back if Up is set
	Panic *panics.Panic // a panic that goes on to the caller
}

// GiveBack is how a message is given back to its broker.
type GiveBack struct {
	Failed bool
	After  time.Duration
}

// Package middleware documents these errors.
var (
	ErrNotNow         = errors.New("middleware: not now")
	ErrInFlight       = errors.New("middleware: another delivery of the message is in flight")
	ErrHandlerTimeout = errors.New("middleware: the handler returned after its HandlerTimeout")
	ErrOutputs        = errors.New("middleware: the handler returned messages, and no outbox publishes them")
	ErrForeignTx      = errors.New("middleware: the handler asked for a transaction that is not the inbox's")
	ErrAckedEarly     = errors.New("middleware: the handler acked the message before its effects were committed")
	ErrEndedEarly     = errors.New("middleware: a function of the program exited its goroutine (runtime.Goexit)")

	ErrUnknownDestination = errors.New("middleware: unknown destination")
	ErrUnknownTopic       = errors.New("middleware: unknown topic")
	ErrOutputTooLarge     = errors.New("middleware: the message is larger than its destination takes")

	// ErrDeferred and ErrBehind: the delivery is held although no other delivery has the message.
	ErrDeferred = errors.New("middleware: the message has failed before, and its next attempt is not due yet")
	ErrBehind   = errors.New("middleware: an earlier message of the same order key has failed and is not completed yet")

	errPayloadChanged = errors.New("middleware: the handler changed the payload in place, so the message cannot be run again")
	errCrashed        = errors.New("middleware: the process ended while the handler ran")
	errShared         = errors.New("middleware: the process ended while the handler ran, beside others")
	errBegun          = fmt.Errorf("%w, or its process has ended", ErrInFlight)
	errAlone          = errors.New("middleware: messages that may have ended a process run one at a time, and other suspects run")
	errPaused         = fmt.Errorf("middleware: %w: the intake is paused", stores.ErrUnavailable)
	errOuterDeadline  = errors.New("middleware: a middleware around the inbox has ended the message's context by a deadline: use HandlerTimeout instead, or put it inside")
)

// NotNowError says that the delivery is given back without a failure.
type NotNowError struct {
	Cause error
	Held  time.Duration
}

// Error implements error.
func (e *NotNowError) Error() string {
	return fmt.Sprintf("%s after %s: %s", ErrNotNow, e.Held.Round(time.Millisecond), e.Cause)
}

// Unwrap returns ErrNotNow and the cause.
func (e *NotNowError) Unwrap() []error { return []error{ErrNotNow, e.Cause} }

// GivenBackError is a recorded failure of a message that the broker redelivers.
type GivenBackError struct{ Cause error }

// Error implements error.
func (e *GivenBackError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *GivenBackError) Unwrap() error { return e.Cause }
