package sqlstore

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millpond-go/millpond/stores"
)

// Registered knows a store's registered consumers, and whether its tables were checked. It is safe
// for concurrent use.
type Registered struct {
	name   string // the store's package, with which errors begin
	closed atomic.Bool

	mu        sync.RWMutex
	consumers map[stores.Consumer]int64
	checked   bool // whether the tables were checked
}

// NewRegistered returns an empty Registered for a store's package.
func NewRegistered(name string) *Registered {
	return &Registered{name: name, consumers: make(map[stores.Consumer]int64)}
}

// Close refuses further calls. It reports whether it was the first Close.
func (r *Registered) Close() bool { return !r.closed.Swap(true) }

// Closed reports whether Close was called.
func (r *Registered) Closed() bool { return r.closed.Load() }

// Add notes the number of a registered consumer.
func (r *Registered) Add(c stores.Consumer, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.consumers[c] = number
}

// Forget drops all consumers: new tables lack them.
func (r *Registered) Forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.consumers)
	r.checked = false
}

// CheckOnce checks once that the tables are there and fit this program, for calls that need no
// registered consumer.
func (r *Registered) CheckOnce(ctx context.Context, validate func(context.Context) error) error {
	if r.closed.Load() {
		return stores.ErrClosed
	}
	r.mu.RLock()
	checked := r.checked
	r.mu.RUnlock()
	if checked {
		return nil
	}
	if err := validate(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	r.checked = true
	r.mu.Unlock()
	return nil
}

// Consumer returns the number of a registered consumer.
func (r *Registered) Consumer(c stores.Consumer) (int64, error) {
	if r.closed.Load() {
		return 0, stores.ErrClosed
	}
	r.mu.RLock()
	number, ok := r.consumers[c]
	r.mu.RUnlock()
	if ok {
		return number, nil
	}
	if err := (stores.Key{Consumer: c, ID: []byte{0}}).Validate(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("%s: %w: %s", r.name, stores.ErrNotRegistered, c)
}

// Known returns the number of a key's consumer if the key is valid and the consumer registered.
func (r *Registered) Known(k stores.Key) (int64, error) {
	// A registered consumer is valid, so only the id is checked.
	number, err := r.Consumer(k.Consumer)
	if n := len(k.ID); err == nil && (n == 0 || n > stores.MaxIDBytes) {
		err = k.Validate()
	}
	return number, err
}
