package myproxy

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/millpond-go/millpond/internal/dbproxy"
)

type (
	// Stats counts what went through the proxy; it is that of every protocol.
	Stats = dbproxy.Stats
	// RandomFaults gives COMMITs their chance of a fault; it is that of every protocol.
	RandomFaults = dbproxy.RandomFaults
)

// Proxy forwards connections to one server. Its methods are safe for concurrent use.
type Proxy struct {
	*dbproxy.Proxy

	url string
}

// Start listens on a free port of 127.0.0.1 and forwards to the server of a URL of the form
// mysql://user:password@host:port/database. The server need not be up. The caller must
// call Close.
func Start(serverURL string) (*Proxy, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "mysql" || u.Hostname() == "" {
		// The text may hold a password, so it is not repeated.
		return nil, errors.New("myproxy: not a URL of the form mysql://user:password@host:port/database")
	}
	upstream := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "3306"))
	proxy, err := dbproxy.Start(upstream, newSession)
	if err != nil {
		return nil, fmt.Errorf("myproxy: %w", err)
	}
	u.Host = proxy.Addr()
	return &Proxy{Proxy: proxy, url: u.String()}, nil
}

// URL returns the URL that was given to Start, leading through the proxy.
func (p *Proxy) URL() string { return p.url }

// ConnStats returns what was counted on the present connection whose CONNECTION_ID() is
// id; false if there is none.
func (p *Proxy) ConnStats(id uint32) (Stats, bool) { return p.Proxy.ConnStats(id) }
