package middleware

import (
	"errors"
	"sync"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// cacheKey is a key in comparable form.
type cacheKey struct {
	consumer stores.Consumer
	id       string
}

func newCacheKey(k stores.Key) cacheKey { return cacheKey{k.Consumer, string(k.ID)} }

// completedCache remembers keys that are proven to be completed, with their
// fingerprint. It forgets everything when the server may have changed (see
// doubtsServer): a failover can lose the commit that it knows of.
//
// It has two generations: when the young one is full it becomes the old one, and the
// old one is forgotten. So it remembers at least half of its size, readers do not
// exclude each other, and adding allocates nothing once it is warm. (An LRU list, whose
// order every reader changes, took twice the time of the rest of a duplicate.)
type completedCache struct {
	size int // of both generations; 0: off
	ttl  time.Duration

	mu         sync.RWMutex
	young, old map[cacheKey]completedEntry
}

type completedEntry struct {
	fingerprint stores.Fingerprint
	trace       stores.TraceParent // of the delivery that did the work
	until       time.Time
}

func newCompletedCache(size int, ttl time.Duration) *completedCache {
	if size < 0 {
		return &completedCache{}
	}
	return &completedCache{
		size: size, ttl: ttl,
		young: make(map[cacheKey]completedEntry), old: make(map[cacheKey]completedEntry),
	}
}

// lookup reports whether the key is known to be completed for the same message, and in
// which trace. For another fingerprint, or one that cannot be compared, the store is asked.
func (c *completedCache) lookup(k stores.Key, f stores.Fingerprint) (stores.TraceParent, bool) {
	if c.size == 0 {
		return stores.TraceParent{}, false
	}
	entry, ok := c.get(newCacheKey(k))
	if !ok || time.Now().After(entry.until) {
		return stores.TraceParent{}, false
	}
	return entry.trace, f == (stores.Fingerprint{}) || f.Compare(entry.fingerprint) == stores.Same
}

func (c *completedCache) get(key cacheKey) (completedEntry, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	entry, ok := c.young[key]
	if !ok {
		entry, ok = c.old[key]
	}
	return entry, ok
}

// add is called only after a commit was proven or a store has called the key
// completed.
func (c *completedCache) add(k stores.Key, f stores.Fingerprint, t stores.TraceParent) {
	if c.size == 0 {
		return
	}
	key, entry := newCacheKey(k), completedEntry{f, t, time.Now().Add(c.ttl)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.young) >= (c.size+1)/2 {
		c.young, c.old = c.old, c.young
		clear(c.young)
	}
	c.young[key] = entry
}

// doubtsServer reports whether, after an error of the store, the next answer may come
// from another server, or from an earlier state of it: whenever it is not known that
// nothing has happened to the connections. A statement that was under way when its time
// was over leaves the doubt, as its connection is closed; a wait for one leaves none.
func doubtsServer(err error) bool {
	for _, known := range []error{stores.ErrBusy, stores.ErrInvalidKey, stores.ErrTooLarge, ErrInFlight} {
		if errors.Is(err, known) {
			return false
		}
	}
	return true
}

func (c *completedCache) flush() {
	if c.size == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.young)
	clear(c.old)
}
