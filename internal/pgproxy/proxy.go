package pgproxy

import (
	"errors"
	"fmt"
	"net"
	"net/url"

	"github.com/jackc/pgx/v5/pgconn"

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

// Start listens on a free port of 127.0.0.1 and forwards to the server of a URL. The
// server need not be up. The caller must call Close.
func Start(serverURL string) (*Proxy, error) {
	// pgconn knows all forms of a URL, and what the environment adds to it.
	config, err := pgconn.ParseConfig(serverURL)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	u, err := url.Parse(serverURL)
	if err != nil || u.Host == "" {
		return nil, errors.New("pgproxy: the server must be given as a URL with a host")
	}
	proxy, err := dbproxy.Start(net.JoinHostPort(config.Host, fmt.Sprint(config.Port)), newSession)
	if err != nil {
		return nil, fmt.Errorf("pgproxy: %w", err)
	}
	u.Host = proxy.Addr()
	query := u.Query()
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return &Proxy{Proxy: proxy, url: u.String()}, nil
}

// URL returns the URL that was given to Start, leading through the proxy.
func (p *Proxy) URL() string { return p.url }

// ConnStats returns what was counted on the present connection whose server process
// is pid (pgconn.PgConn.PID); false if there is none.
func (p *Proxy) ConnStats(pid uint32) (Stats, bool) { return p.Proxy.ConnStats(pid) }
