// Package openset keeps what must be closed, such as the subscribers of a broker, and
// refuses new members once closing has begun.
package openset

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
)

// Set holds what is open. The zero value is empty and ready for use. It is safe for
// concurrent use, and must not be copied.
type Set[T interface {
	comparable
	io.Closer
}] struct {
	mu      sync.Mutex
	closed  bool
	members map[T]struct{}
}

// Add takes a member. It returns false if the set is closed: the caller still has the
// member, and must close it.
func (s *Set[T]) Add(member T) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	if s.members == nil {
		s.members = make(map[T]struct{})
	}
	s.members[member] = struct{}{}
	return true
}

// Remove removes a member, if it is one.
func (s *Set[T]) Remove(member T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.members, member)
}

// Each calls f with each member. f must not add or remove any.
func (s *Set[T]) Each(f func(T)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for member := range s.members {
		f(member)
	}
}

// All returns the members, in no order.
func (s *Set[T]) All() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.members))
}

// Closed reports whether Close was called.
func (s *Set[T]) Closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Seal refuses new members from now on, and returns the present ones.
func (s *Set[T]) Seal() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Collect(maps.Keys(s.members))
}

// Close refuses new members from now on, closes the present ones at the same time, waits
// for them and returns their errors. They may remove themselves meanwhile. A second call,
// even a concurrent one, closes the remaining members again.
func (s *Set[T]) Close() error {
	members := s.Seal()
	errs := make([]error, len(members))
	var closing sync.WaitGroup
	for i, member := range members {
		closing.Go(func() { errs[i] = member.Close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
