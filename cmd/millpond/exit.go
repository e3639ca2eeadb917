package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// The exit codes. Scripts rely on these numbers.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2 // called wrongly; nothing was done
	exitNothing = 3 // nothing matched
	exitPartly  = 4 // only part could be done
	exitFound   = 5 // doctor found something that weakens a promise
)

// exitingError is an error that ends the program with its own exit code.
type exitingError struct {
	code int
	err  error
}

func (e *exitingError) Error() string { return e.err.Error() }
func (e *exitingError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitingError{exitUsage, fmt.Errorf(format, args...)}
}

func nothingf(format string, args ...any) error {
	return &exitingError{exitNothing, fmt.Errorf(format, args...)}
}

func partlyf(format string, args ...any) error {
	return &exitingError{exitPartly, fmt.Errorf(format, args...)}
}

// exitCode returns the exit code for err. An error before a command has started is a usage error.
func exitCode(err error, started bool) int {
	if err == nil {
		return exitOK
	}
	if e, ok := errors.AsType[*exitingError](err); ok {
		return e.code
	}
	if !started {
		return exitUsage
	}
	return exitError
}

// explain returns the text about err for a person.
func explain(err error) string {
	if _, ok := errors.AsType[*exitingError](err); ok { // already explained
		return err.Error()
	}
	switch {
	case errors.Is(err, stores.ErrNotMigrated):
		return "the store's tables are missing or older than this program: run millpond migrate up (millpond migrate status tells more)"
	case errors.Is(err, stores.ErrSchemaNewer):
		return "the store's tables belong to a newer version of millpond: use that version of this program (millpond migrate status tells more)"
	case errors.Is(err, context.Canceled):
		return "interrupted"
	}
	return err.Error()
}
