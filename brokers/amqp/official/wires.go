package official

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"
)

var errCut = errors.New("amqp/official: closed")

// wires are the connections of one watermill-amqp subscriber or publisher, one at a time.
// Without them it ends what it waits for: to close a connection, it waits for the broker's
// answer, which one that hangs, or that takes no messages for want of memory, never gives.
type wires struct {
	addresses []string
	tls       *tls.Config
	timeout   time.Duration

	mu      sync.Mutex
	dead    bool
	current net.Conn
}

func (b *Broker) lay() *wires {
	return &wires{addresses: b.config.Addresses, tls: b.config.TLS, timeout: b.config.ConnectTimeout}
}

// Dial connects to the first address that answers, until the wires are cut. It is
// amqp091.Config.Dial; the address is not looked at.
func (w *wires) Dial(network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), w.timeout)
	defer cancel()
	var errs []error
	for _, address := range w.addresses {
		conn, err := w.dial(ctx, network, address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.dead {
			return nil, errors.Join(errCut, conn.Close())
		}
		w.current = conn
		return conn, nil
	}
	return nil, errors.Join(errs...)
}

func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	dead := w.dead
	w.mu.Unlock()
	if dead {
		return nil, errCut
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// For the handshakes; the client takes it away after them.
	if err := conn.SetDeadline(time.Now().Add(w.timeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if w.tls == nil {
		return conn, nil
	}
	config := w.tls.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(address)
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// interrupt ends the connection of now.
func (w *wires) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current != nil {
		_ = w.current.Close()
		w.current = nil
	}
}

// cut ends the connection, and lets nobody make new ones.
func (w *wires) cut() {
	w.mu.Lock()
	w.dead = true
	w.mu.Unlock()
	w.interrupt()
}
