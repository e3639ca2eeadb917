// Package completed remembers keys whose commit was proven.
package completed

import (
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Key is a key of the stores' contract in comparable form.
type Key struct {
	consumer stores.Consumer
	id       string
}

// KeyOf returns it.
func KeyOf(k stores.Key) Key { return Key{k.Consumer, string(k.ID)} }

// Cache remembers keys that are proven to be completed, with their
// fingerprint. It forgets everything when the server may have changed: a
// failover can lose the commit that it knows of. Its caller says when.
//
// It has two generations: when the young one is full it becomes the old one, and the
// old one is forgotten. So it remembers at least half of its size, readers do not
// exclude each other, and adding allocates nothing once it is warm. (An LRU list, whose
// order every reader changes, took twice the time of the rest of a duplicate.)
type Cache struct {
	size int // of both generations; 0: off
	ttl  time.Duration

	mu         sync.RWMutex
	young, old map[Key]known
}

type known struct {
	fingerprint stores.Fingerprint
	trace       stores.TraceParent // of the delivery that did the work
	until       time.Time
}

// New returns a cache of so many keys, each of which is remembered for ttl. A negative size
// remembers none.
func New(size int, ttl time.Duration) *Cache {
	if size < 0 {
		return &Cache{}
	}
	return &Cache{
		size: size, ttl: ttl,
		young: make(map[Key]known), old: make(map[Key]known),
	}
}

// Lookup reports whether the key is known to be completed for the same message, and in
// which trace. For another fingerprint, or one that cannot be compared, the store is asked.
func (c *Cache) Lookup(k stores.Key, f stores.Fingerprint) (stores.TraceParent, bool) {
	if c.size == 0 {
		return stores.TraceParent{}, false
	}
	entry, ok := c.get(KeyOf(k))
	if !ok || time.Now().After(entry.until) {
		return stores.TraceParent{}, false
	}
	return entry.trace, f == (stores.Fingerprint{}) || f.Compare(entry.fingerprint) == stores.Same
}

func (c *Cache) get(k Key) (known, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	entry, ok := c.young[k]
	if !ok {
		entry, ok = c.old[k]
	}
	return entry, ok
}

// Add is called only after a commit was proven or a store has called the key
// completed.
func (c *Cache) Add(k stores.Key, f stores.Fingerprint, t stores.TraceParent) {
	if c.size == 0 {
		return
	}
	this, entry := KeyOf(k), known{f, t, time.Now().Add(c.ttl)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= (c.size+1)/2 {
		c.young, c.old = c.old, c.young
		clear(c.young)
	}
	c.young[this] = entry
}

// Flush forgets everything.
func (c *Cache) Flush() {
	if c.size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.young)
	clear(c.old)
}
