package sqlite

import (
	"context"
	"fmt"
	"sync"

	"github.com/millpond-go/millpond/stores"
)

// flight is a key that is being claimed, run or recorded by this store.
type flight struct {
	consumer int64
	id       string
}

// flights lets one at a time have a key. The zero value is ready to use.
type flights struct {
	mu     sync.Mutex
	places map[flight]*place
}

// place is a key's among the flights.
type place struct {
	open    bool          // a handler runs, and holds the writer
	decided chan struct{} // closed when it is open or over
}

// takeOff reports whether the key was free.
func (fs *flights) takeOff(f flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.place(f) == nil
}

// place returns the place that is taken, or takes it and returns nil.
func (fs *flights) place(f flight) *place {
	if p := fs.places[f]; p != nil {
		return p
	}
	if fs.places == nil {
		fs.places = make(map[flight]*place)
	}
	fs.places[f] = &place{decided: make(chan struct{})}
	return nil
}

// takeOffAfter waits for others to be decided. It reports false if a handler runs: for
// that it does not wait.
func (fs *flights) takeOffAfter(ctx context.Context, f flight) (bool, error) {
	for {
		fs.mu.Lock()
		p := fs.place(f)
		open := p != nil && p.open
		fs.mu.Unlock()
		if p == nil || open {
			return p == nil, nil
		}
		select {
		case <-p.decided:
		case <-ctx.Done():
			return false, fmt.Errorf("%w: waiting for a claim of the same key: %w", stores.ErrUnavailable, context.Cause(ctx))
		}
	}
}

// opened notes that the claim was won.
func (fs *flights) opened(f flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	p := fs.places[f]
	p.open = true
	close(p.decided)
}

func (fs *flights) land(f flight) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if p := fs.places[f]; !p.open {
		close(p.decided)
	}
	delete(fs.places, f)
}

// flying reports whether a key is in flight.
func (fs *flights) flying(consumer int64, id string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.places[flight{consumer, id}] != nil
}

// open reports whether a handler of a key runs.
func (fs *flights) open(consumer int64, id string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	p := fs.places[flight{consumer, id}]
	return p != nil && p.open
}
