package official

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/millpond-go/millpond/brokers"
)

// dialer connects for one subscriber or publisher of watermill-amqp. One that is closed while it
// reconnects leaks the new connection; the dialer closes it.
type dialer struct {
	config *Config

	mu     sync.Mutex
	last   net.Conn
	closed bool
}

// dial connects to the first address that answers; watermill-amqp knows only one.
func (d *dialer) dial(network, _ string) (net.Conn, error) {
	conn, err := d.config.dial(network)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.Join(fmt.Errorf("amqp/official: %w", brokers.ErrClosed), conn.Close())
	}
	d.last = conn
	return conn, nil
}

// close closes the connection. Later calls of dial fail.
func (d *dialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.last != nil {
		_ = d.last.Close() // usually it has already ended
	}
}

func (c *Config) dial(network string) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.ConnectTimeout)
	defer cancel()
	var errs []error
	for _, address := range c.Addresses {
		if c.TLS != nil {
			conn, err = (&tls.Dialer{Config: c.TLS}).DialContext(ctx, network, address)
		} else {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		}
		if err == nil {
			return conn, conn.SetDeadline(time.Now().Add(c.ConnectTimeout)) // the client removes the deadline
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
