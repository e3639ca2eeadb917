package sqltx

import (
	"sync"

	"github.com/millpond-go/millpond/stores"
)

// Gate counts the statements and rows of a handler that use a connection, and keeps the first
// failure. A handler may leave goroutines and rows behind. They must not touch the connection once
// another message uses it. The zero value is open.
type Gate struct {
	mu      sync.Mutex
	over    bool
	using   int32
	failure error
}

// Acquire notes that the connection is in use until Release. It returns done once the gate is
// closed, and ErrTxEnded if the transaction has ended: a later statement would commit by itself.
// ended must not read the connection's state unless alone is true.
func (g *Gate) Acquire(done error, ended func(alone bool) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.over:
		return done
	case ended(g.using == 0):
		return stores.ErrTxEnded
	}
	g.using++
	return nil
}

// Release ends what Acquire began. judge returns the new first failure. A closed gate does not call
// it, because later failures are the store's doing.
func (g *Gate) Release(judge func(first error, alone bool) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.using--
	if !g.over {
		g.failure = judge(g.failure, g.using == 0)
	}
}

// Judge sets the first failure to the result of judge.
func (g *Gate) Judge(judge func(first error) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failure = judge(g.failure)
}

// Fail records a failure if it is the first.
func (g *Gate) Fail(err error) {
	g.Judge(func(first error) error {
		if first == nil {
			return err
		}
		return first
	})
}

// Failure returns the first failure that was not undone.
func (g *Gate) Failure() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.failure
}

// Close refuses further statements. idle is false if some are still running.
func (g *Gate) Close() (idle bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
	return g.using == 0
}

// Closed reports whether the attempt is over, or about to be.
func (g *Gate) Closed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.over
}

// Shared reports whether several statements, or their rows, use the connection.
func (g *Gate) Shared() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.using > 1
}
