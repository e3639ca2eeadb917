package kafka

import (
	"context"
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

// NewMembership returns one that has heard nothing yet.
var NewMembership = newMembership

// Problem is why nothing can be handed to the member.
func (m *membership) Problem() error { return m.problem() }

// LeaveTimeout is how much longer than DrainTimeout Close may take.
const LeaveTimeout = leaveTimeout

// Frost stands between the subscribers of a broker and the network, which says nothing any
// more while it lasts; the broker's own connections are spared.
type Frost struct {
	mu   sync.Mutex
	thaw chan struct{} // nil: no frost
}

// Freezable puts the connections of all subscribers of b at the mercy of the frost.
func Freezable(b *Broker) *Frost {
	f := &Frost{}
	b.options = func(*Subscriber) []kgo.Opt {
		return []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return &freezable{Conn: conn, frost: f, closed: make(chan struct{})}, err
		})}
	}
	return f
}

// Freeze begins it, and returns what ends it.
func (f *Frost) Freeze() (thaw func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until := make(chan struct{})
	f.thaw = until
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.thaw = nil
		close(until)
	}
}

func (f *Frost) until() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.thaw
}

type freezable struct {
	net.Conn

	frost  *Frost
	once   sync.Once
	closed chan struct{}
}

// Read waits with what it has read.
func (c *freezable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if thaw := c.frost.until(); thaw != nil {
		select {
		case <-thaw:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	return n, err
}

// Write swallows what is sent: the broker hears nothing either.
func (c *freezable) Write(b []byte) (int, error) {
	if c.frost.until() != nil {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *freezable) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
