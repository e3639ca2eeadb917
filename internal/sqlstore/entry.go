package sqlstore

import (
	"sync"

	"github.com/millpond-go/millpond/stores"
)

// Entry holds what must be known of a handler's conduct before its attempt may be
// committed. The zero value is ready; it is safe for concurrent use, because a
// handler may have left goroutines behind.
type Entry struct {
	mu      sync.Mutex
	entered bool
	doom    error
}

// Enter marks the attempt as used by a handler run. A second run returns
// ErrReentered and dooms the attempt.
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

// Doom makes the attempt impossible to commit. The first reason stays.
func (e *Entry) Doom(reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.doom == nil {
		e.doom = reason
	}
}

// Doomed returns the reason, nil if there is none.
func (e *Entry) Doomed() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.doom
}
