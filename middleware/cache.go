package middleware

import (
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/millpond-go/millpond/stores"
)

// cacheKey is a key in comparable form.
type cacheKey struct {
	consumer stores.Consumer
	id       string
}

func newCacheKey(k stores.Key) cacheKey { return cacheKey{k.Consumer, string(k.ID)} }

// completedCache remembers keys that are proven to be completed, with their
// fingerprint. It forgets everything when the server may have changed: a failover
// can lose the commit that it knows of.
type completedCache struct {
	keys *lru.Cache[cacheKey, completedEntry] // nil: off
	ttl  time.Duration
}

type completedEntry struct {
	fingerprint stores.Fingerprint
	until       time.Time
}

func newCompletedCache(size int, ttl time.Duration) *completedCache {
	if size < 0 {
		return &completedCache{}
	}
	keys, _ := lru.New[cacheKey, completedEntry](size) // fails for sizes below 1 only
	return &completedCache{keys: keys, ttl: ttl}
}

// has reports whether the key is known to be completed for the same message. For
// another fingerprint, or one that cannot be compared, the store is asked.
func (c *completedCache) has(k stores.Key, f stores.Fingerprint) bool {
	if c.keys == nil {
		return false
	}
	entry, ok := c.keys.Get(newCacheKey(k))
	if !ok || time.Now().After(entry.until) {
		return false
	}
	return f == (stores.Fingerprint{}) || f.Compare(entry.fingerprint) == stores.Same
}

// add is called only after a commit was proven or a store has called the key
// completed.
func (c *completedCache) add(k stores.Key, f stores.Fingerprint) {
	if c.keys != nil {
		c.keys.Add(newCacheKey(k), completedEntry{f, time.Now().Add(c.ttl)})
	}
}

func (c *completedCache) flush() {
	if c.keys != nil && c.keys.Len() > 0 {
		c.keys.Purge()
	}
}

// failureCounts remembers how often recent messages have failed in this process,
// for brokers that do not count deliveries.
type failureCounts struct{ counts *lru.Cache[cacheKey, int] }

func newFailureCounts() *failureCounts {
	const remembered = 1024
	counts, _ := lru.New[cacheKey, int](remembered)
	return &failureCounts{counts}
}

// add counts one more failure and returns how many there were.
func (f *failureCounts) add(k stores.Key) int {
	key := newCacheKey(k)
	n, _ := f.counts.Get(key)
	n++
	f.counts.Add(key, n)
	return n
}
