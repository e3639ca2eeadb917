package sqltx

import (
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// Outcome is the outcome of an attempt. One goroutine at a time uses it.
type Outcome struct {
	over   bool
	result error
}

// Open returns ErrTxClosed once Commit or Rollback was called.
func (o *Outcome) Open(p Package) error {
	if o.over {
		return fmt.Errorf("%s: %w", p, stores.ErrTxClosed)
	}
	return nil
}

// Commit commits once. A second call returns the same.
func (o *Outcome) Commit(commit func() error) error {
	if !o.over {
		o.over, o.result = true, errPanicked
		o.result = commit()
	}
	return o.result
}

var errPanicked = fmt.Errorf("%w: a function of the program panicked", stores.ErrCommitUnknown)

// Rollback rolls back, unless the attempt is over. A later commit fails.
func (o *Outcome) Rollback(p Package, rollback func() error) error {
	if o.over {
		return nil
	}
	o.over, o.result = true, p.NotCommitted(errRolledBack)
	if err := rollback(); err != nil {
		return fmt.Errorf("%s: rollback: %w", p, err)
	}
	return nil
}

var errRolledBack = errors.New("the attempt was rolled back")

// ErrEscaped: the handler could end the transaction without being refused.
var ErrEscaped = fmt.Errorf("%w: %w", stores.ErrTxEnded, stores.ErrTxEscaped)

// Aborted returns ErrTxAborted with the error that the handler hid.
func Aborted(failure error) error {
	if failure == nil {
		return stores.ErrTxAborted
	}
	return fmt.Errorf("%w: %w", stores.ErrTxAborted, failure)
}

// Package is the name of a store's package, with which its errors begin.
type Package string

// NotCommitted returns an error that says why nothing was committed.
func (p Package) NotCommitted(reason error) error {
	return fmt.Errorf("%s: %w: %w", p, stores.ErrNotCommitted, reason)
}

// CommitUnknown returns an error that says why the outcome of a commit is unknown.
func (p Package) CommitUnknown(reason error) error {
	return fmt.Errorf("%s: %w: %w", p, stores.ErrCommitUnknown, reason)
}

// Interrupted implements stores.Interruptible, given a failure that may be the database's alone.
func (p Package) Interrupted(failure error, database func(error) bool) error {
	if !database(failure) {
		return nil
	}
	return fmt.Errorf("%s: the attempt was interrupted: %w", p, failure)
}
