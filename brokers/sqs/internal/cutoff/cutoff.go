// Package cutoff cuts subscribers off from their server, for the tests of both adapters: a
// subscriber that is cut off looks dead to the server.
package cutoff

import (
	"errors"
	"net/http"
	"sync"
)

// ErrCut is the error of requests from a subscriber that is cut off.
var ErrCut = errors.New("the wire was cut")

// Client sends requests, like an aws.HTTPClient.
type Client interface {
	Do(r *http.Request) (*http.Response, error)
}

// Wires pass subscribers' requests. The zero value cuts off none. It is safe for concurrent use.
type Wires[S comparable] struct {
	mu   sync.Mutex
	dead map[S]bool
}

// Cut stops all further requests of a subscriber. Running requests continue.
func (w *Wires[S]) Cut(subscriber S) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead == nil {
		w.dead = make(map[S]bool)
	}
	w.dead[subscriber] = true
}

// Through returns a client that uses client until the subscriber is cut off.
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
