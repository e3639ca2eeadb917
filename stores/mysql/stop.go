package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"sync"
)

// place identifies a connection on a server. A restarted server counts its connections from 1
// again, so the id alone may belong to another one.
type place struct {
	server string
	number uint64 // of the server, as in stores.Verdict
	id     string
}

func (p *place) isOn(server string) {
	sum := sha256.Sum256([]byte(server))
	p.server, p.number = server, binary.BigEndian.Uint64(sum[:])
}

// serverName distinguishes a server from others at the same address, and from its state before a
// restart, without which no earlier state can return. Comments choose the table.
const serverName = "CONCAT_WS(' ', @@hostname, @@port, @@server_id, UNIX_TIMESTAMP() - CAST((SELECT VARIABLE_VALUE FROM " +
	"/*M! information_schema.GLOBAL_STATUS */ /*!80000 performance_schema.global_status */ WHERE VARIABLE_NAME = 'Uptime') AS SIGNED))"

// stop ends a connection on the server, from another one, unless the server is another one or has
// restarted since. TiDB is left to notice that the connection is closed: a KILL in the middle of
// a statement can end it with a panic (pingcap/tidb 63956).
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

// servers remembers the servers of connections that our connector did not make. Each is asked
// once.
type servers struct {
	mu    sync.Mutex
	known map[any]uint64 // by the driver's connection
}

// of returns the server of a connection, as stores.Verdict has it.
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
	if open := db.Stats().OpenConnections; s.known == nil || len(s.known) > 2*open { // most are closed
		s.known = make(map[any]uint64, open)
	}
	s.known[native] = at.number
	return at.number, nil
}
