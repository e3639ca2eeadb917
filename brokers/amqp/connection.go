package amqp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/millpond-go/millpond/brokers"
	"github.com/millpond-go/millpond/internal/unreachable"
)

// The environment variables with the credentials.
const (
	UsernameVariable = "MILLPOND_AMQP_USERNAME"
	PasswordVariable = "MILLPOND_AMQP_PASSWORD" //nolint:gosec // a name
)

// guest is every server's default user, and its password. By default it may connect only from the
// server's own machine.
const guest = "guest"

// authenticate moves the credentials into the mechanism. Only the mechanism keeps the password, so
// that printing a Broker does not show it.
func (c *Config) authenticate() amqp091.Authentication {
	if c.Username == "" {
		c.Username, c.Password = os.Getenv(UsernameVariable), os.Getenv(PasswordVariable)
	}
	if c.Username == "" {
		c.Username, c.Password = guest, guest
	}
	plain := &amqp091.PlainAuth{Username: c.Username, Password: c.Password}
	c.Password = ""
	return plain
}

// String returns the configuration without the password.
func (c Config) String() string {
	return fmt.Sprintf("amqp://%s/%s (TLS %t, user %q, name %q, %+v, %+v, %+v)",
		strings.Join(c.Addresses, ","), c.VirtualHost, c.TLS != nil, c.Username, c.ConnectionName, c.Topology, c.Consume, c.Publish)
}

// Format prints String, whatever the verb.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// connection is one connection while it lasts.
type connection struct {
	*amqp091.Connection

	server server
	wire   net.Conn
	gone   chan struct{} // closed when it has ended
	again  time.Time     // when it replaced a lost connection; zero for the first one

	mu      sync.Mutex
	blocked string // why the server blocks publishers; "" if it does not
}

// dial connects to the first node that answers.
func (b *Broker) dial(ctx context.Context, l *link) (*connection, error) {
	c := &b.config
	ctx, cancel := context.WithTimeout(ctx, c.ConnectTimeout)
	defer cancel()
	var errs []error
	for _, address := range c.Addresses {
		conn, err := b.dialOne(ctx, address, l)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("amqp: %s: %w: %w: %s", address, brokers.ErrUnavailable, err, c.advice(err)))
	}
	return nil, errors.Join(errs...)
}

func (b *Broker) dialOne(ctx context.Context, address string, l *link) (*connection, error) {
	c := &b.config
	var dialer net.Dialer
	wire, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if b.tap != nil {
		wire = b.tap(l, wire)
	}
	raw := wire
	defer context.AfterFunc(ctx, func() { _ = wire.SetDeadline(time.Unix(1, 0)) })()
	if c.TLS != nil {
		config := c.TLS.Clone()
		if config.ServerName == "" {
			config.ServerName, _, _ = net.SplitHostPort(address)
		}
		secured := tls.Client(wire, config)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = wire.Close()
			return nil, inTime(ctx, err)
		}
		wire = secured
	}
	properties := amqp091.NewConnectionProperties()
	properties.SetClientConnectionName(c.ConnectionName + " " + l.purpose)
	client, err := amqp091.Open(wire, amqp091.Config{
		SASL:       []amqp091.Authentication{b.credentials},
		Vhost:      c.VirtualHost,
		Heartbeat:  c.Heartbeat,
		Properties: properties,
		Locale:     "en_US",
	})
	if err != nil {
		_ = wire.Close()
		return nil, inTime(ctx, err)
	}
	conn := &connection{Connection: client, server: newServer(client.Properties), wire: raw, gone: make(chan struct{})}
	ended := client.NotifyClose(make(chan *amqp091.Error, 1))
	blocked := client.NotifyBlocked(make(chan amqp091.Blocking, 8))
	go conn.watch(ended, blocked)
	return conn, nil
}

// inTime returns err, or the context's error if the time was already up.
func inTime(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// watch notes what the server reports about the connection.
func (c *connection) watch(ended <-chan *amqp091.Error, blocked <-chan amqp091.Blocking) {
	for {
		select {
		case b, ok := <-blocked:
			if !ok {
				blocked = nil
				continue
			}
			c.mu.Lock()
			c.blocked = ""
			if b.Active {
				c.blocked = cmp.Or(b.Reason, "no reason given")
			}
			c.mu.Unlock()
		case <-ended: //nolint:errcheck // users of the connection find out the reason
			close(c.gone)
			// The client finishes writing before it closes its channels. A server that does not
			// read would block that for ever.
			_ = c.wire.Close()
			return
		}
	}
}

// comeback is how long subscribers, with their pauses, may take to return after an outage of the
// broker.
const comeback = 15 * time.Second

// recovering reports whether the broker was away recently. Then a queue or its binding may be
// missing until its subscribers have declared it again.
func (c *connection) recovering() bool { return !c.again.IsZero() && time.Since(c.again) < comeback }

// blockedBy returns why the server blocks publishers, or "".
func (c *connection) blockedBy() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked
}

// impatient ends a connection whose server does not answer a question for long: the client's
// questions have no timeout. A server that is short of memory may take its time. Call answered when
// the answer is there.
func (b *Broker) impatient(c *connection) (answered func()) {
	timer := time.AfterFunc(b.config.ConnectTimeout, func() {
		if c.blockedBy() == "" {
			c.end()
		}
	})
	return func() { timer.Stop() }
}

// end closes the connection, in order if the server answers soon.
func (c *connection) end() {
	const farewell = 3 * time.Second
	// The client's deadline is not enough: each heartbeat from the server extends it.
	late := time.AfterFunc(farewell, func() { _ = c.wire.Close() })
	defer late.Stop()
	_ = c.CloseDeadline(time.Now().Add(farewell)) // the timer closes it in any case
	<-c.gone
}

// advice returns what to check. It names addresses and users, never passwords.
func (c *Config) advice(err error) string {
	switch {
	case errors.Is(err, amqp091.ErrCredentials), errors.Is(err, amqp091.ErrSASL):
		return fmt.Sprintf("the broker refuses the credentials of user %q: check the URL, or %s and %s; guest may connect only from the broker's own machine", c.Username, UsernameVariable, PasswordVariable)
	case errors.Is(err, amqp091.ErrVhost):
		return fmt.Sprintf("there is no virtual host %q, or user %q may not use it: create it with rabbitmqctl add_vhost and set_permissions, or name another in the URL's path", c.VirtualHost, c.Username)
	case c.TLS != nil && errors.Is(err, io.EOF):
		err = tls.RecordHeaderError{}
	}
	advice := unreachable.Advice(err, c.ConnectTimeout, "use amqp:// or")
	if _, protocol := errors.AsType[*amqp091.Error](err); advice == "" && protocol && c.TLS == nil {
		advice = "it does not answer like a broker: check host and port, and whether the port wants TLS, which is amqps://"
	}
	return cmp.Or(advice, "check host, port and TLS")
}
