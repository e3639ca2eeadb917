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

// Fresh is how long a server that has answered is taken for the one that still answers.
const Fresh = 2 * time.Second

// Cache remembers keys that are proven to be completed, with their
// fingerprint. A failover can lose the commit that it knows of. So it forgets everything
// when another server answers, or an earlier state of it, or when its caller is in doubt,
// and it tells nothing unless a server that says which it is has answered lately.
//
// It has two generations: when the young one is full it becomes the old one, and the
// old one is forgotten. So it remembers at least half of its size, readers do not
// exclude each other, and adding allocates nothing once it is warm. (An LRU list, whose
// order every reader changes, took twice the time of the rest of a duplicate.)
type Cache struct {
	size  int // of both generations; 0: off
	ttl   time.Duration
	began time.Time // the cache's clock

	mu         sync.RWMutex
	young, old map[Key]known
	server     server
}

// server is the one that has answered.
type server struct {
	number uint64    // as in stores.Verdict; 0: it has not told
	since  time.Time // what was asked before says nothing about it
	last   time.Time // when it was asked last; zero: not since then
}

type known struct {
	fingerprint stores.Fingerprint
	trace       stores.TraceParent // of the delivery that did the work
	until       time.Duration      // by the cache's clock
}

// New returns a cache of so many keys, each of which is remembered for ttl. A negative size
// remembers none.
func New(size int, ttl time.Duration) *Cache {
	if size < 0 {
		return &Cache{}
	}
	return &Cache{
		size: size, ttl: ttl, began: time.Now(),
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
	if !ok {
		return stores.TraceParent{}, false
	}
	return entry.trace, f == (stores.Fingerprint{}) || f.Compare(entry.fingerprint) == stores.Same
}

// get asks for the time only if there is an entry: most keys are new.
func (c *Cache) get(k Key) (known, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	entry, ok := c.young[k]
	if !ok {
		entry, ok = c.old[k]
	}
	if !ok || time.Since(c.began) > entry.until {
		return known{}, false
	}
	return entry, c.server.number == 0 || time.Since(c.server.last) <= Fresh
}

// Answered notes that a server has answered what it was asked then, and reports whether it
// is not the one that had answered before. Server 0 has not told.
func (c *Cache) Answered(number uint64, asked time.Time) (changed bool) {
	if number == 0 {
		return false
	}
	c.mu.RLock()
	s := c.server
	c.mu.RUnlock()
	if s.number == number && asked.Sub(s.last) < Fresh/8 {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch s := &c.server; {
	case asked.Before(s.since): // perhaps of the one before
		return false
	case s.number == number:
		if asked.After(s.last) {
			s.last = asked
		}
		return false
	}
	changed = c.server.number != 0
	c.server = server{number: number, since: asked, last: asked}
	clear(c.young)
	clear(c.old)
	return changed
}

// Add is called only after a commit was proven or a store has called the key
// completed, by the server that has answered the claim.
func (c *Cache) Add(k stores.Key, f stores.Fingerprint, t stores.TraceParent, server uint64) {
	if c.size == 0 {
		return
	}
	this, entry := KeyOf(k), known{f, t, time.Since(c.began) + c.ttl}
	c.mu.Lock()
	defer c.mu.Unlock()
	if server != c.server.number {
		return
	}
	if len(c.young) >= (c.size+1)/2 {
		c.young, c.old = c.old, c.young
		clear(c.young)
	}
	c.young[this] = entry
}

// Flush forgets everything, and tells nothing until a server has answered.
func (c *Cache) Flush() {
	if c.size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server.since, c.server.last = time.Now(), time.Time{}
	clear(c.young)
	clear(c.old)
}
