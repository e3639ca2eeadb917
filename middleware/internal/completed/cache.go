// Package completed remembers keys whose commit was proven.
package completed

import (
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// Key is the comparable form of a key of the stores' contract.
type Key struct {
	consumer stores.Consumer
	id       string
}

// KeyOf returns the comparable form of k.
func KeyOf(k stores.Key) Key { return Key{k.Consumer, string(k.ID)} }

// Fresh is how long the last server that answered is assumed to be the current one.
const Fresh = 2 * time.Second

// Cache remembers keys that are proven to be completed, with their fingerprint. A failover can lose
// such a commit. So the cache is flushed when another server answers, or an earlier state of the
// same server, or when the caller is in doubt. It answers only while a known server has answered
// recently.
//
// It has two generations. When the young one is full it becomes the old one, and the previous old
// one is dropped. So it keeps at least half of its size, readers do not exclude each other, and a
// warm cache adds without allocating. (An LRU list, whose order every reader changes, took twice
// the time of everything else for a duplicate.)
type Cache struct {
	size  int // of both generations; 0: off
	ttl   time.Duration
	began time.Time // when the cache's clock began

	mu         sync.RWMutex
	young, old map[Key]known
	server     server
}

// server is the server that answered last.
type server struct {
	number uint64    // as in stores.Verdict; 0: unknown
	since  time.Time // requests before this may have reached another server
	last   time.Time // the latest request that it answered; zero: none since then
}

type known struct {
	fingerprint stores.Fingerprint
	trace       stores.TraceParent // of the delivery that completed the message
	until       time.Duration      // by the cache's clock
}

// New returns a cache of size keys, each of which is kept for ttl. A negative size keeps none.
func New(size int, ttl time.Duration) *Cache {
	if size < 0 {
		return &Cache{}
	}
	return &Cache{
		size: size, ttl: ttl, began: time.Now(),
		young: make(map[Key]known), old: make(map[Key]known),
	}
}

// Lookup reports whether the key is known to be completed for the same message, and in which trace.
// It reports false for another fingerprint, or one that cannot be compared: then the store decides.
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

// get reads the clock only if there is an entry: most keys are new.
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

// Answered notes that a server answered a request made at asked, and reports whether it is another
// server than before. 0 is an unknown server.
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
	case asked.Before(s.since): // perhaps the answer of the server before
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

// Add adds a key after a proven commit, or after a store said it was completed. server is the one
// that answered the claim.
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

// Flush drops all keys. Lookup finds nothing until a server has answered.
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
