// Package cutoff cuts subscribers off from their server, for the tests of both adapters:
// to the server, one that is cut off is as good as dead.
package cutoff

import (
	"errors"
	"net/http"
	"sync"
)

// ErrCut is what a request of a subscriber that is cut off fails with.
var ErrCut = errors.New("the wire was cut")

// Client sends requests. An aws.HTTPClient is one.
type Client interface {
	Do(r *http.Request) (*http.Response, error)
}

// Wires are what the requests of subscribers pass through. The zero value cuts off none.
// It is safe for concurrent use.
type Wires[S comparable] struct {
	mu   sync.Mutex
	dead map[S]bool
}

// Cut lets nothing of a subscriber pass, from now on. Requests under way are not ended.
func (w *Wires[S]) Cut(subscriber S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead == nil {
		w.dead = make(map[S]bool)
	}
	w.dead[subscriber] = true
}

// Through returns a client whose requests pass by client until the subscriber is cut off.
func (w *Wires[S]) Through(subscriber S, client Client) Client {
	return &cuttable[S]{w, subscriber, client}
}

type cuttable[S comparable] struct {
	wires      *Wires[S]
	subscriber S
	client     Client
}

func (c *cuttable[S]) Do(r *http.Request) (*http.Response, error) {
	c.wires.mu.Lock()
	dead := c.wires.dead[c.subscriber]
	c.wires.mu.Unlock()
	if dead {
		return nil, ErrCut
	}
	return c.client.Do(r)
}
