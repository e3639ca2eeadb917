package middleware

import (
	"fmt"

	"github.com/millpond-go/millpond/middleware/internal/panics"
	"github.com/millpond-go/millpond/middleware/internal/text"
)

// PanicError is the value of a panic that left a handler. It replaces the handler's own value,
// whose text may be long and may contain message content. Its own text, by every verb of fmt, is
// cut and has no control characters. errors.As finds the value if that is an error.
type PanicError struct{ panic *panics.Panic }

// Value returns what the handler panicked with.
func (e *PanicError) Value() any { return e.panic.Value }

// Stack returns where the handler panicked: a function, file and line on each line, innermost
// first, down to the inbox. It is cut.
func (e *PanicError) Stack() string { return e.panic.Stack }

// Error implements error.
func (e *PanicError) Error() string { return e.panic.Text }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.panic.Value.(error)
	return err
}

// Format implements fmt.Formatter: no verb prints the value.
func (e *PanicError) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(e.panic.Text)) }

// boundPanic is deferred: a panic on its way through the inbox, of hooks and stores, too, goes on
// up as a PanicError.
func boundPanic() {
	if r := recover(); r != nil {
		panic(newPanicError(r))
	}
}

func newPanicError(r any) *PanicError {
	if p, ok := r.(*PanicError); ok { // from an inbox inside this one
		return p
	}
	return &PanicError{panics.Recovered(r)}
}

// innerPanic is deferred around a handler. An inner inbox has recorded the panic already.
func innerPanic() {
	if r := recover(); r != nil {
		panic(newPanicError(r).panic)
	}
}

// upward is an error for the router, which logs its text unchanged.
type upward struct {
	text  string
	cause error
}

func goUp(err error) error {
	if err == nil {
		return nil
	}
	return &upward{text.OneLine(text.Printable(err)), err}
}

func (e *upward) Error() string              { return e.text }
func (e *upward) Unwrap() error              { return e.cause }
func (e *upward) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(e.text)) }
