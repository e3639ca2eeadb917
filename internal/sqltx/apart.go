package sqltx

import (
	"fmt"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// Apart records what a handler in a batch wanted that cannot be shared. The zero value says that it
// wanted nothing. It is safe for concurrent use.
type Apart struct{ what atomic.Pointer[string] }

// Note records the first such request, and returns the handler's error.
func (a *Apart) Note(p Package, what string) error {
	a.what.CompareAndSwap(nil, &what)
	return a.Err(p)
}

// Err returns why the handler must run alone, or nil.
func (a *Apart) Err(p Package) error {
	if what := a.what.Load(); what != nil {
		return fmt.Errorf("%s: %w", p, &stores.NotSharedError{What: *what})
	}
	return nil
}
