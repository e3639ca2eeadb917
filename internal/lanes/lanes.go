// Package lanes lets messages of one key wait for each other, and no others.
package lanes

import "sync"

// Lanes hold, for each key of which something is under way, what waits behind it. The zero
// value is empty. It is safe for concurrent use.
type Lanes[T any] struct {
	mu      sync.Mutex
	waiting map[string][]T
}

// Join reports whether nothing of the key is under way, so that v is from now on. Otherwise
// v waits.
func (l *Lanes[T]) Join(key string, v T) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting, busy := l.waiting[key]
	if l.waiting == nil {
		l.waiting = make(map[string][]T)
	}
	if !busy {
		l.waiting[key] = nil
		return true
	}
	l.waiting[key] = append(waiting, v)
	return false
}

// Next notes that what was under way is done with, and returns what is after it. Without
// such, the lane is gone.
func (l *Lanes[T]) Next(key string) (next T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.waiting[key]
	if len(waiting) == 0 {
		delete(l.waiting, key)
		return next, false
	}
	next, l.waiting[key] = waiting[0], waiting[1:]
	return next, true
}

// Leave takes what waits out of the lane, which is gone then.
func (l *Lanes[T]) Leave(key string) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.waiting[key]
	delete(l.waiting, key)
	return waiting
}
