package sqltx

import (
	"fmt"
	"sync"

	"github.com/millpond-go/millpond/stores"
)

// Entry records a handler's conduct, which decides whether its attempt may be committed. The zero
// value is ready. It is safe for concurrent use, because a handler may have left goroutines behind.
type Entry struct {
	mu       sync.Mutex
	entered  bool
	returned bool // the typed handler has returned
	doom     error
	said     error
}

// Enter marks the attempt as used by a run of the handler. A second run gets ErrReentered, which
// dooms the attempt.
func (e *Entry) Enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entered {
		if e.doom == nil {
			e.doom = stores.ErrReentered
		}
		return stores.ErrReentered
	}
	e.entered = true
	return nil
}

// Returned notes the typed handler's error, which a middleware may hide.
func (e *Entry) Returned(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.returned, e.said = true, err
}

// Said returns the typed handler's error, and whether there is such a handler and it has returned.
func (e *Entry) Said() (returned bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.returned, e.said
}

// Doom makes the attempt impossible to commit. The first reason counts.
func (e *Entry) Doom(reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.doom == nil {
		e.doom = reason
	}
}

// Doomed returns why the attempt must not be committed, or nil. Call it after the handler returned
// nil.
func (e *Entry) Doomed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.doom != nil:
		return e.doom
	case e.entered && !e.returned:
		return fmt.Errorf("%w: it has panicked, or still runs", stores.ErrFailureHidden)
	case e.said != nil:
		return fmt.Errorf("%w: %w", stores.ErrFailureHidden, e.said)
	}
	return nil
}
