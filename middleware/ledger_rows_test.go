package middleware_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
)

func rawID(k stores.Key) string { return strings.TrimPrefix(string(k.ID), "u:") }

// failing makes the named calls return ErrUnavailable until the returned function is
// called.
func (l *ledger) failing(calls ...string) (well func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failingLocked(calls...)
}

func (l *ledger) failingLocked(calls ...string) (well func()) {
	l.fault = func(call string) error {
		if slices.Contains(calls, call) {
			return stores.ErrUnavailable
		}
		return nil
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fault = nil
	}
}

func (l *ledger) story() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.log, "\n")
}

func (l *ledger) calls(call string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[call]
}

// row returns a copy of a message's row; its status is 0 if there is none.
func (l *ledger) row(id string) ledgerRow {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.rows[id]; r != nil {
		return *r
	}
	return ledgerRow{}
}

// put places a row as an earlier failure has left it, and returns its version.
func (l *ledger) put(f stores.Failure) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Content == nil {
		id := rawID(f.Key)
		f.Content = &stores.Content{State: stores.ContentKept, UUID: id, Payload: []byte("payload of " + id)}
	}
	if f.Key.Consumer == (stores.Consumer{}) {
		f.Key.Consumer = stores.Consumer{Service: "inventory", Handler: "stock"}
	}
	l.numbers++
	r := &ledgerRow{status: f.Status, number: l.numbers, failure: f, first: time.Now(), due: time.Now().Add(f.DueIn), presumed: f.Start}
	l.rows[rawID(f.Key)] = r
	return r.version()
}

// failedBefore is a row for put.
func failedBefore(id string, p stores.Placement, attempts int) stores.Failure {
	return stores.Failure{Key: stores.Key{ID: []byte("u:" + id)}, Status: stores.StatusPending, Placement: p, Attempts: attempts}
}

// ends remembers how deliveries ended.
type ends struct {
	mu  sync.Mutex
	all []middleware.DeliveryEnd
}

func (e *ends) DeliveryEnd(_ context.Context, d middleware.DeliveryEnd) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, d)
}

func (e *ends) last() middleware.DeliveryEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) == 0 {
		return middleware.DeliveryEnd{}
	}
	return e.all[len(e.all)-1]
}

func (e *ends) configure(c *middleware.InboxConfig) { c.Hooks = append(c.Hooks, e) }
