// Package callback calls functions of the program: those of a configuration, hooks,
// loggers. A panic in one of them must not end its caller, and least of all the process,
// which would get the same message again after its restart.
package callback

import (
	"fmt"
	"runtime"
	"strings"
)

// maxText bounds the text of a panic in bytes, because it may come from a message.
const maxText = 1 << 10

// Call calls f. A panic in it becomes an error that begins with what, the name by which the
// program knows the function. runtime.Goexit goes on, as it does in any function.
func Call(what string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = Panicked(what, r)
		}
	}()
	return f()
}

// Apart is Call on a goroutine of its own, for callers whose goroutine must not end:
// runtime.Goexit becomes an error, too.
func Apart(what string, f func() error) error {
	answer := make(chan error, 1)
	go func() {
		err := fmt.Errorf("%s exited its goroutine (runtime.Goexit)", what)
		defer func() { answer <- err }()
		err = Call(what, f)
	}()
	return <-answer
}

// Panicked returns the error for a panic that was recovered with the value r, with its
// place if the panic is still on the stack.
func Panicked(what string, r any) error {
	return fmt.Errorf("%s panicked: %s%s", what, Text(r), place())
}

// Text returns the text of a panic, cut.
func Text(r any) string {
	text, ok := r.(string)
	if !ok {
		text = fmt.Sprint(r) // which survives methods that panic
	}
	if len(text) > maxText {
		text = text[:maxText] + "…"
	}
	return text
}

// place returns the line that panicked.
func place() string {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers[:])])
	panicking := false
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		switch {
		case frame.Function == "runtime.gopanic" || frame.Function == "runtime.panicmem":
			panicking = true
		case panicking && !strings.HasPrefix(frame.Function, "runtime."):
			return fmt.Sprintf(" (at %s:%d)", frame.Function, frame.Line)
		}
	}
	return ""
}

// Read reads a delivery with f, called as Apart does. If f is nil or fails, it reads with
// own, which always returns a value; the error of f counts then.
func Read[From, Made any](what string, f func(From) (*Made, error), from From, own func(From) (*Made, error)) (made *Made, err error) {
	if f == nil {
		return own(from)
	}
	err = Apart(what, func() (err error) {
		made, err = f(from)
		return err
	})
	if err == nil && made == nil {
		err = fmt.Errorf("%s returned neither a value nor an error", what)
	}
	if err != nil {
		made, _ = own(from)
	}
	return made, err
}
