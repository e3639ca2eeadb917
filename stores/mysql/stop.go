package mysql

import (
	"context"
	"time"
)

// place is where a connection ends. A server that starts again counts its connections
// from 1, so the id alone may be that of somebody else's.
type place struct {
	server string
	id     string
	since  time.Time // it was open
}

// serverName tells a server from others behind the same address.
const serverName = "CONCAT_WS(' ', @@hostname, @@port, @@server_id)"

// stop ends a connection on the server, from another one, unless that is another server
// or has started since.
func (s *Store) stop(ctx context.Context, at place) (err error) {
	conn, err := s.connection(ctx, s.db)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var (
		server, variable string
		uptime           int64 // whole seconds
	)
	if err = conn.QueryRowContext(ctx, "SELECT "+serverName).Scan(&server); err == nil {
		err = conn.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Uptime'").Scan(&variable, &uptime)
	}
	if err != nil || server != at.server || time.Since(at.since) > time.Duration(uptime+1)*time.Second {
		return err
	}
	_, err = conn.ExecContext(ctx, "KILL "+at.id)
	return err
}
