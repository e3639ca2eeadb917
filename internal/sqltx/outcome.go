package sqltx

import (
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/stores"
)

// Outcome is what has become of an attempt. It is asked by one goroutine at a time.
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

// Commit commits, once. Called again it returns the same.
func (o *Outcome) Commit(commit func() error) error {
	if !o.over {
		o.over, o.result = true, errPanicked
		o.result = commit()
	}
	return o.result
}

var errPanicked = fmt.Errorf("%w: a function of the program panicked", stores.ErrCommitUnknown)

// Rollback rolls back, unless the attempt is over. A commit after it fails.
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

// ErrEscaped: the handler had ways to end the transaction that nobody has refused.
var ErrEscaped = fmt.Errorf("%w: %w", stores.ErrTxEnded, stores.ErrTxEscaped)

// Aborted is ErrTxAborted with what the handler has hidden.
func Aborted(failure error) error {
	if failure == nil {
		return stores.ErrTxAborted
	}
	return fmt.Errorf("%w: %w", stores.ErrTxAborted, failure)
}

// Package is the name of a store's package, which begins its errors.
type Package string

// NotCommitted says why nothing was committed.
func (p Package) NotCommitted(reason error) error {
	return fmt.Errorf("%s: %w: %w", p, stores.ErrNotCommitted, reason)
}

// CommitUnknown says why it is not known whether anything was committed.
func (p Package) CommitUnknown(reason error) error {
	return fmt.Errorf("%s: %w: %w", p, stores.ErrCommitUnknown, reason)
}

// Interrupted is Interrupted of stores.Interruptible, by a failure that may lie with the
// database alone.
func (p Package) Interrupted(failure error, database func(error) bool) error {
	if !database(failure) {
		return nil
	}
	return fmt.Errorf("%s: the attempt was interrupted: %w", p, failure)
}
