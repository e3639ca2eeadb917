package loop

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// held has the items that a loop has reserved and not finished.
type held[T any] struct {
	mu    sync.Mutex
	items map[*reservation[T]]struct{}
}

// reservation is one item's reservation.
type reservation[T any] struct {
	item T
	at   time.Time // when the request was sent that reserved or renewed it last
}

func newHeld[T any]() *held[T] { return &held[T]{items: make(map[*reservation[T]]struct{})} }

func (h *held[T]) add(batch []T, at time.Time) []*reservation[T] {
	added := make([]*reservation[T], len(batch))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, item := range batch {
		added[i] = &reservation[T]{item: item, at: at}
		h.items[added[i]] = struct{}{}
	}
	return added
}

// drop drops reservations, and returns their items.
func (h *held[T]) drop(reservations []*reservation[T]) []T {
	items := make([]T, len(reservations))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, r := range reservations {
		items[i] = r.item
		delete(h.items, r)
	}
	return items
}

// all returns all reservations and their items.
func (h *held[T]) all() ([]*reservation[T], []T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Collect(maps.Keys(h.items))
	items := make([]T, len(all))
	for i, r := range all {
		items[i] = r.item
	}
	return all, items
}

func (h *held[T]) renew(reservations []*reservation[T], at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range reservations {
		r.at = at
	}
}

// renewed returns when a reservation was made or last renewed.
func (h *held[T]) renewed(r *reservation[T]) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return r.at
}
