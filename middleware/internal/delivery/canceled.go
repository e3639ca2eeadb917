package delivery

import (
	"sync"

	"github.com/millpond-go/millpond/middleware/internal/completed"
	"github.com/millpond-go/millpond/stores"
)

// maxCancellations bounds what is remembered of canceled handlers.
const maxCancellations = 1024

// cancellations remembers the messages whose handlers have heeded the end of their
// context. A process shuts down once, so the second time something else has ended it: a
// middleware, for each delivery.
type cancellations struct {
	mu   sync.Mutex
	seen map[completed.Key]struct{}
}

// before reports whether it has been called for the key before.
func (c *cancellations) before(k stores.Key) bool {
	key := completed.KeyOf(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, seen := c.seen[key]; seen {
		return true
	}
	if c.seen == nil || len(c.seen) >= maxCancellations {
		c.seen = make(map[completed.Key]struct{})
	}
	c.seen[key] = struct{}{}
	return false
}
