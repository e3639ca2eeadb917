package sqlite

import (
	"context"
	"fmt"
	"sync"

	"github.com/millpond-go/millpond/stores"
)

// flight is a key that this store is claiming, running or recording.
type flight struct {
	consumer int64
	id       string
}

// flights gives a key to one caller at a time. The zero value is ready to use.
type flights struct {
	mu     sync.Mutex
	places map[flight]*place
}

// place is one key's place in flights.
type place struct {
	open    bool          // a handler runs, and holds the writer
	decided chan struct{} // closed when the claim is decided
}

// takeOff takes a key, and reports whether it was free.
func (fs *flights) takeOff(f flight) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return fs.place(f) == nil
}

// place returns a taken key's place, or takes the key and returns nil.
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

// takeOffAfter takes a key, after earlier claims of it are decided. If a handler is running it
// reports false without waiting.
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

// open reports whether a key's handler is running.
func (fs *flights) open(consumer int64, id string) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	p := fs.places[flight{consumer, id}]
	return p != nil && p.open
}
