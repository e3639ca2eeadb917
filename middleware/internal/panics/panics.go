// Package panics turns panics into errors. Their text is cut, has no control characters, and says
// where the panic happened.
package panics

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/millpond-go/millpond/middleware/internal/text"
	"github.com/millpond-go/millpond/stores"
)

// ErrPanicked: the handler panicked or exited its goroutine.
var ErrPanicked = errors.New("middleware: the handler panicked")

// ErrExited: the handler exited its goroutine.
var ErrExited = fmt.Errorf("%w: it exited its goroutine (runtime.Goexit)", ErrPanicked)

// Panic is a panic's value and its place.
type Panic struct {
	Value any
	Text  string
	Stack string
}

// Both are kept with the failure, within stores.MaxErrorBytes.
const (
	mostText  = 3 << 9
	mostStack = 2 << 10
)

// Recovered is for a deferred function, with the result of recover.
func Recovered(r any) *Panic {
	if p, ok := r.(*Panic); ok { // already recovered further in
		return p
	}
	return &Panic{
		Value: r,
		Text:  text.Cut(ErrPanicked.Error()+": "+text.OneLine(text.OfPanic(r)), mostText),
		Stack: text.Cut(stack(), mostStack),
	}
}

// stack returns the stack of the innermost panic, down to the inbox.
func stack() string {
	const depth = 128
	var pcs [depth]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs[:])])
	var b strings.Builder
	panicking, inHandler := false, false
	for more := true; more && b.Len() < mostStack; {
		var frame runtime.Frame
		frame, more = frames.Next()
		switch {
		case !panicking:
			panicking = frame.Function == "runtime.gopanic"
			continue
		case !inHandler && strings.HasPrefix(frame.Function, "runtime."):
			continue // frames of the runtime
		case ours(frame.Function):
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

// ours reports whether a function belongs to the inbox.
func ours(function string) bool {
	const inbox = "github.com/millpond-go/millpond/middleware"
	return strings.HasPrefix(function, inbox+".(*visit).") || strings.HasPrefix(function, inbox+"/internal/")
}

// CauseError is a panic as the cause of a failed attempt. It does not unwrap to the panic's value,
// because a policy for errors is not one for panics.
type CauseError struct{ *Panic }

// Error implements error.
func (c CauseError) Error() string { return c.Text }

// Is matches ErrPanicked.
func (c CauseError) Is(target error) bool { return target == ErrPanicked }

// StackOf returns the stack of the panic that caused an error, or "".
func StackOf(err error) string {
	if c, ok := errors.AsType[CauseError](err); ok {
		return c.Stack
	}
	return ""
}

// WithStack adds the stack of the panic that caused a failure to the failure's kept text.
func WithStack(kept string, cause error) string {
	stack := StackOf(cause)
	if stack == "" {
		return kept
	}
	return text.Cut(kept, stores.MaxErrorBytes-len(stack)-1) + "\n" + stack
}
