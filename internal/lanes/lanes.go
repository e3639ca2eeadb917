// Package lanes runs messages of one key one after the other, beside those of other keys.
package lanes

import "sync"

// Lanes has a queue for each key that has a running message. The zero value is empty. It is
// safe for concurrent use.
type Lanes[T any] struct {
	mu      sync.Mutex
	waiting map[string][]T
}

// Join returns true if no message of the key runs: v runs from now on. Otherwise v is
// queued.
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

// Next ends the running message of the key and returns the next one, which runs from now
// on. If there is none, the queue is deleted.
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

// Leave deletes the key's queue and returns what was waiting in it.
func (l *Lanes[T]) Leave(key string) []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	waiting := l.waiting[key]
	delete(l.waiting, key)
	return waiting
}
