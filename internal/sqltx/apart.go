package sqltx

import (
	"fmt"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// Apart is what cannot be shared, that a handler in a batch has wanted. The zero value is
// nothing; it is safe for concurrent use.
type Apart struct{ what atomic.Pointer[string] }

// Note notes it, if it is the first, and returns what the handler is told.
func (a *Apart) Note(p Package, what string) error {
	a.what.CompareAndSwap(nil, &what)
	return a.Err(p)
}

// Err returns why the handler must run apart, nil if it need not.
func (a *Apart) Err(p Package) error {
	if what := a.what.Load(); what != nil {
		return fmt.Errorf("%s: %w: %s", p, stores.ErrNotShared, *what)
	}
	return nil
}
