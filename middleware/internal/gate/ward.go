package gate

import (
	"context"
	"sync"
)

// company says what may run beside a suspect.
type company uint8

const (
	none   company = iota // not running
	beside                // other suspects that may also run beside others
	alone                 // no other suspect
)

// ward orders suspects. One that may have ended a process runs alone; the others run beside each
// other. One that waits to run alone goes before those that have not begun.
type ward struct {
	mu      sync.Mutex
	alone   bool
	waiting int // waiting to run alone
	beside  int
	changed chan struct{} // closed when one leaves; nil without waiters
}

func newWard() *ward { return &ward{} }

// try enters if it need not wait.
func (w *ward) try(how company) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.enterNow(how)
}

// enter waits until it can enter. It reports false if ctx ends first.
func (w *ward) enter(ctx context.Context, how company) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits := 0
	if how == alone {
		waits = 1
		w.waiting++
	}
	for !w.enterNow(how) {
		if w.changed == nil {
			w.changed = make(chan struct{})
		}
		changed := w.changed
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		w.mu.Lock()
		if ctx.Err() != nil {
			w.waiting -= waits
			w.tell()
			return false
		}
	}
	w.waiting -= waits
	return true
}

// enterNow enters if it can.
func (w *ward) enterNow(how company) bool {
	switch {
	case w.alone, how == alone && w.beside > 0, how == beside && w.waiting > 0:
		return false
	case how == alone:
		w.alone = true
	default:
		w.beside++
	}
	return true
}

func (w *ward) leave(how company) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if how == alone {
		w.alone = false
	} else {
		w.beside--
	}
	w.tell()
}

func (w *ward) tell() {
	if w.changed != nil {
		close(w.changed)
		w.changed = nil
	}
}
