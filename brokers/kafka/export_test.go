package kafka

import (
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Wires cuts the connections of subscribers, which then are as good as dead.
type Wires struct {
	mu    sync.Mutex
	dead  map[*Subscriber]bool
	conns map[*Subscriber][]net.Conn
}

// Tap lets the connections of all subscribers of b pass through the wires.
func Tap(b *Broker) *Wires {
	w := &Wires{dead: make(map[*Subscriber]bool), conns: make(map[*Subscriber][]net.Conn)}
	b.options = func(s *Subscriber) []kgo.Opt { return []kgo.Opt{kgo.WithHooks(tap{w, s})} }
	return w
}

// Cut kills the connections of a subscriber, now and for ever.
func (w *Wires) Cut(s *Subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead[s] = true
	for _, conn := range w.conns[s] {
		_ = conn.Close()
	}
}

type tap struct {
	wires      *Wires
	subscriber *Subscriber
}

func (t tap) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, conn net.Conn, err error) {
	if err != nil {
		return
	}
	t.wires.mu.Lock()
	defer t.wires.mu.Unlock()
	if t.wires.dead[t.subscriber] {
		_ = conn.Close()
		return
	}
	t.wires.conns[t.subscriber] = append(t.wires.conns[t.subscriber], conn)
}

// LeaveTimeout is how much longer than DrainTimeout Close may take.
const LeaveTimeout = leaveTimeout
