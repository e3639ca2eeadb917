package middleware

import (
	"context"
	"errors"
	"sync"

	"github.com/millpond-go/millpond/stores"
)

// errOuterDeadline: a shutdown has no deadline, so it is a middleware's.
var errOuterDeadline = errors.New("middleware: a middleware around the inbox has ended the message's context by a deadline: use HandlerTimeout instead, or put it inside")

// timedOut reports whether a deadline has ended the message's context, such as that of a
// Timeout middleware around the inbox. Nothing can be held then, and nothing is to be
// waited for: what goes wrong has to be recorded, or it would go on for ever.
func (d *delivery) timedOut() bool {
	return errors.Is(d.shutdown.Err(), context.DeadlineExceeded)
}

// maxCancellations bounds what is remembered of canceled handlers.
const maxCancellations = 1024

// cancellations remembers the messages whose handlers have heeded the end of their
// context. A process shuts down once, so the second time something else has ended it: a
// middleware, for each delivery.
type cancellations struct {
	mu   sync.Mutex
	seen map[cacheKey]struct{}
}

func newCancellations() *cancellations { return &cancellations{seen: make(map[cacheKey]struct{})} }

// before reports whether it has been called for the key before.
func (c *cancellations) before(k stores.Key) bool {
	key := newCacheKey(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, seen := c.seen[key]; seen {
		return true
	}
	if len(c.seen) >= maxCancellations {
		clear(c.seen)
	}
	c.seen[key] = struct{}{}
	return false
}
