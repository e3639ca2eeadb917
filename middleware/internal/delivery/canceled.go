package delivery

import (
	"sync"

	"github.com/millpond-go/millpond/middleware/internal/completed"
	"github.com/millpond-go/millpond/stores"
)

// maxCancellations bounds how many messages are remembered.
const maxCancellations = 1024

// cancellations remembers the messages whose handlers returned because their context ended. A
// process shuts down once, so a second time for the same message has another cause: a middleware
// that ends each delivery.
type cancellations struct {
	mu   sync.Mutex
	seen map[completed.Key]struct{}
}

// before notes the key, and reports whether it was already noted.
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
