package official

import "sync"

// Wires cuts the connections of subscribers, which then are as good as dead.
type Wires struct {
	mu  sync.Mutex
	all map[*Subscriber][]*wires
}

// Tap finds out about the connections of all subscribers of b.
func Tap(b *Broker) *Wires {
	w := &Wires{all: make(map[*Subscriber][]*wires)}
	b.laid = func(s *Subscriber, laid *wires) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all[s] = append(w.all[s], laid)
	}
	return w
}

// Cut kills the connections of a subscriber, now and for ever.
func (w *Wires) Cut(s *Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, laid := range w.all[s] {
		laid.cut()
	}
}
