package official

import (
	"errors"
	"net"
	"sync"

	"github.com/IBM/sarama"
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
	b.adjust = func(s *Subscriber, c *sarama.Config) {
		c.Net.Proxy.Enable, c.Net.Proxy.Dialer = true, dialer{w, s}
	}
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

type dialer struct {
	wires      *Wires
	subscriber *Subscriber
}

var errCut = errors.New("the wires are cut")

func (d dialer) Dial(network, address string) (net.Conn, error) {
	d.wires.mu.Lock()
	defer d.wires.mu.Unlock()
	if d.wires.dead[d.subscriber] {
		return nil, errCut
	}
	conn, err := net.Dial(network, address)
	if err == nil {
		d.wires.conns[d.subscriber] = append(d.wires.conns[d.subscriber], conn)
	}
	return conn, err
}
