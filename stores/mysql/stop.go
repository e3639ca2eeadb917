package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"sync"
)

// place identifies a connection on a server. A restarted server counts connections from 1 again, so
// the id alone may belong to another connection.
type place struct {
	server string
	number uint64 // the server's, as in stores.Verdict
	id     string
}

func (p *place) isOn(server string) {
	sum := sha256.Sum256([]byte(server))
	p.server, p.number = server, binary.BigEndian.Uint64(sum[:])
}

// serverName distinguishes a server from others at its address, and from itself before a restart,
// without which no earlier state can return, unless both starts were in the same second: no server
// says more exactly when it was started. Comments choose the table.
const serverName = "CONCAT_WS(' ', @@hostname, @@port, @@server_id, UNIX_TIMESTAMP() - CAST((SELECT VARIABLE_VALUE FROM " +
	"/*M! information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */ WHERE VARIABLE_NAME = 'Uptime') AS SIGNED))"

// stop ends a connection on the server, from another connection, unless the server is another one
// or was restarted. On TiDB it does nothing, and TiDB notices the closed connection: a KILL in the
// middle of a statement can end it with a panic (pingcap/tidb 63956).
func (s *Store) stop(ctx context.Context, at place) (err error) {
	if s.texts().tidb {
		return nil
	}
	conn, err := s.connection(ctx, s.db)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var server string
	if err = conn.QueryRowContext(ctx, "SELECT "+serverName).Scan(&server); err != nil || server != at.server {
		return err
	}
	_, err = conn.ExecContext(ctx, "KILL "+at.id)
	return err
}

// servers remembers the servers of connections that our connector did not make. It asks each
// connection once.
type servers struct {
	mu    sync.Mutex
	known map[any]uint64 // by the driver's connection
}

// of returns a connection's server, as in stores.Verdict.
func (s *servers) of(ctx context.Context, db *sql.DB, c *sql.Conn) (server uint64, err error) {
	var native any
	err = c.Raw(func(driverConn any) error {
		native = driverConn
		return nil
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	server, known := s.known[native]
	s.mu.Unlock()
	if known {
		return server, nil
	}
	var name string
	if err = c.QueryRowContext(ctx, "SELECT "+serverName).Scan(&name); err != nil {
		return 0, err
	}
	var at place
	at.isOn(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if open := db.Stats().OpenConnections; s.known == nil || len(s.known) > 2*open { // most of the known ones are closed
		s.known = make(map[any]uint64, open)
	}
	s.known[native] = at.number
	return at.number, nil
}
