package budget

import (
	"errors"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Mark marks a handler's error with a class. nil stays nil.
func Mark(err error, class stores.Class) error {
	if err == nil {
		return nil
	}
	return &marked{err, class}
}

// Delay marks an error so that the next attempt waits at least d. nil stays nil.
func Delay(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &delayed{err, max(d, 0)}
}

// Marked returns the class with which an error was marked.
func Marked(err error) (stores.Class, bool) {
	if m, ok := errors.AsType[*marked](err); ok {
		return m.class, true
	}
	return "", false
}

// Delayed returns the delay that an error asks for.
func Delayed(err error) (time.Duration, bool) {
	if d, ok := errors.AsType[*delayed](err); ok {
		return d.after, true
	}
	return 0, false
}

type marked struct {
	error

	class stores.Class
}

func (e *marked) Unwrap() error { return e.error }

type delayed struct {
	error

	after time.Duration
}

func (e *delayed) Unwrap() error { return e.error }
