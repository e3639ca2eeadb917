package official

import (
	"errors"
	"net"
	"sync"

	"github.com/IBM/sarama"
)

var errCut = errors.New("kafka/official: the connections were cut, because the broker did not answer in time")

// wires are the connections of a client. Sarama cannot be told to end at once: with a
// broker that hangs it waits for answers, each as long as Net.ReadTimeout, and tries
// again. Without its connections it ends.
type wires struct {
	dialer interface { // as sarama wants it
		Dial(network, address string) (net.Conn, error)
	}

	mu    sync.Mutex
	dead  bool
	conns map[net.Conn]struct{}
}

// lay lets all connections of a client pass through new wires.
func lay(config *sarama.Config) *wires {
	w := &wires{conns: make(map[net.Conn]struct{})}
	if config.Net.Proxy.Enable {
		w.dialer = config.Net.Proxy.Dialer
	} else {
		w.dialer = &net.Dialer{Timeout: config.Net.DialTimeout, KeepAlive: config.Net.KeepAlive, LocalAddr: config.Net.LocalAddr}
	}
	config.Net.Proxy.Enable, config.Net.Proxy.Dialer = true, w
	return w
}

// Dial connects, until the wires are cut.
func (w *wires) Dial(network, address string) (net.Conn, error) {
	w.mu.Lock()
	dead := w.dead
	w.mu.Unlock()
	if dead {
		return nil, errCut
	}
	conn, err := w.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return nil, errors.Join(errCut, conn.Close())
	}
	w.conns[conn] = struct{}{}
	return connection{conn, w}, nil
}

// cut closes the connections and lets nobody make new ones.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
	for conn := range w.conns {
		_ = conn.Close()
	}
}

// connection is one of them, and is forgotten when it is closed.
type connection struct {
	net.Conn

	of *wires
}

func (c connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
