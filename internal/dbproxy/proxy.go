package dbproxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy forwards connections to one server. Its methods are safe for concurrent use.
type Proxy struct {
	upstream   atomic.Pointer[string] // host:port
	newSession func() Session
	listener   *net.TCPListener
	faults     faults
	gate       gate
	latency    atomic.Int64
	running    sync.WaitGroup
	quit       context.Context
	stop       context.CancelFunc

	mu    sync.Mutex
	conns map[*conn]struct{}
	past  Stats // of connections that are closed
}

// Start listens on a free port of 127.0.0.1 and forwards to the server at upstream,
// host:port, which need not be up. newSession is called for every connection. The caller
// must call Close.
func Start(upstream string, newSession func() Session) (*Proxy, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("dbproxy: %w", err)
	}
	p := &Proxy{
		newSession: newSession,
		listener:   listener,
		conns:      make(map[*conn]struct{}),
	}
	p.upstream.Store(&upstream)
	p.quit, p.stop = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's address, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts all connections and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	p.stop()
	err := p.listener.Close()
	p.CutAll()
	p.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("dbproxy: %w", err)
	}
	return nil
}

// Redirect leads connections to another server from now on, and cuts those that there are.
func (p *Proxy) Redirect(upstream string) {
	p.upstream.Store(&upstream)
	p.CutAll()
}

// SetLatency delays the client's part of every round trip by d. On Linux it is kept
// with less than 0.1 ms more, without burning processor time; the proxy's own part
// comes on top.
func (p *Proxy) SetLatency(d time.Duration) { p.latency.Store(int64(d)) }

// Stats returns the sum of all connections, present and past.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := p.past
	for c := range p.conns {
		total = total.plus(c.snapshot())
	}
	return total
}

// ConnStats returns what was counted on the present connection that the server knows by an
// id; false if there is none.
func (p *Proxy) ConnStats(id uint32) (Stats, bool) {
	for _, c := range p.live() {
		if c.id.Load() == id {
			return c.snapshot(), true
		}
	}
	return Stats{}, false
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

// serve is the life of one connection.
func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	var dialer net.Dialer
	server, err := dialer.DialContext(p.quit, "tcp", *p.upstream.Load())
	if err != nil {
		// The nearest thing to the refused connection that the client would have met.
		_ = client.SetLinger(0)
		return
	}
	defer server.Close()
	c := newConn(p, client, server)
	p.add(c)
	defer p.remove(c)
	if p.quit.Err() != nil {
		return // Close may have missed us
	}
	c.run()
}

func (p *Proxy) add(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	p.past = p.past.plus(c.snapshot())
}

func (p *Proxy) live() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	return slices.Clip(conns)
}
