package middleware

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

// PanicError is what goes on up when a handler panics: in place of its value, whose
// text may be of any size and come from a message. Its own text, by every verb of fmt, is
// cut and without control characters. errors.As reaches the value if it is an error.
type PanicError struct {
	value any
	text  string
	stack string
}

// Value is what the handler panicked with.
func (e *PanicError) Value() any { return e.value }

// Stack is where it panicked: a function, file and line on each line, the innermost
// first, down to the inbox. It is cut.
func (e *PanicError) Stack() string { return e.stack }

// Error implements error.
func (e *PanicError) Error() string { return e.text }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// Format implements fmt.Formatter: no verb prints the value.
func (e *PanicError) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(e.text)) }

// Both are kept with the failure, in stores.MaxErrorBytes.
const (
	mostPanicText  = 3 << 9
	mostPanicStack = 2 << 10
)

// newPanicError is called by a deferred function, with what it has recovered.
func newPanicError(recovered any) *PanicError {
	if p, ok := recovered.(*PanicError); ok { // of an inbox inside this one
		return p
	}
	return &PanicError{
		value: recovered,
		text:  cut(errPanicked.Error()+": "+oneLine(panicText(recovered)), mostPanicText),
		stack: cut(panicStack(), mostPanicStack),
	}
}

// boundPanic is deferred: what panics on its way through the inbox, the program's hooks
// and the store included, goes on up as a PanicError.
func boundPanic() {
	if r := recover(); r != nil {
		panic(newPanicError(r))
	}
}

// panicText is what somebody panicked with. Its methods may be the program's, and panic.
func panicText(value any) string {
	switch v := value.(type) {
	case string:
		return shown(v)
	case error:
		return shown(errorText(v))
	default:
		return shown(fmt.Sprint(v))
	}
}

// panicStack is the stack of the innermost panic, down to the inbox.
func panicStack() string {
	const depth = 128
	var pcs [depth]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	var b strings.Builder
	panicking, inHandler := false, false
	for more := true; more && b.Len() < mostPanicStack; {
		var frame runtime.Frame
		frame, more = frames.Next()
		switch {
		case !panicking:
			panicking = frame.Function == "runtime.gopanic"
			continue
		case !inHandler && strings.HasPrefix(frame.Function, "runtime."):
			continue // how the runtime came to it
		case strings.HasPrefix(frame.Function, "github.com/millpond-go/millpond/middleware.(*delivery)."):
			return b.String()
		}
		inHandler = true
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(frame.Function + " (" + filepath.Base(frame.File) + ":" + strconv.Itoa(frame.Line) + ")")
	}
	return b.String()
}

// panicked is a panic as the cause of a failed attempt. It does not unwrap to the value:
// a policy for errors is not one for panics.
type panicked struct{ *PanicError }

func (p panicked) Is(target error) bool { return target == errPanicked }
func (p panicked) Unwrap() error        { return nil }

// withStack adds to what is kept of a failure where the panic happened that is its cause.
func withStack(text string, cause error) string {
	stack := stackOf(cause)
	if stack == "" {
		return text
	}
	return cut(text, stores.MaxErrorBytes-len(stack)-1) + "\n" + stack
}

// stackOf returns where the panic happened that is the cause of an error, if one is.
func stackOf(err error) string {
	if p, ok := errors.AsType[panicked](err); ok {
		return p.stack
	}
	return ""
}

// upward is an error on its way to the router, which logs its text as it is.
type upward struct {
	text  string
	cause error
}

func goUp(err error) error {
	if err == nil {
		return nil
	}
	return &upward{oneLine(printableText(err)), err}
}

func (e *upward) Error() string              { return e.text }
func (e *upward) Unwrap() error              { return e.cause }
func (e *upward) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(e.text)) }

// oneLine writes line breaks as a program would.
func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\t", " ").Replace(s)
}
