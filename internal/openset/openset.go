// Package openset keeps what somebody has opened and must close, such as the subscribers
// of a broker, so that nothing is opened any more once that has begun.
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

// Remove forgets a member, if it is one.
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

// Seal takes no more members from now on, and returns those that are there.
func (s *Set[T]) Seal() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return slices.Collect(maps.Keys(s.members))
}

// Close takes no more members from now on, closes those that are there, all at the same
// time, and waits for that. It returns their errors. They may remove themselves meanwhile.
// Called again, also at once, it closes those that are still members again.
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
