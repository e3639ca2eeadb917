package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// connection takes one out of a pool, and names the pool if none became free in time.
func (s *Store) connection(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	if db == s.attempts {
		return s.crowd.connection(ctx, db)
	}
	return connection(ctx, db)
}

// on calls f with a connection for everything but attempts.
func (s *Store) on(ctx context.Context, f func(*sql.Conn) error) error {
	conn, err := s.connection(ctx, s.db)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return f(conn)
}

func connection(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	return conn, sqlstore.Exhausted(ctx, db, err)
}

// crowd is who wants a connection of a pool while the server admits no more of them, but
// the pool has some, in which others work. The server is not away then: who was refused
// waits for one of those, one after the other.
type crowd struct {
	turn  chan struct{} // full while somebody waits for a connection
	freed chan struct{} // full if one was given back
	until atomic.Int64  // Unix nanoseconds: as long as this nobody tries out of turn
}

const (
	crowdedFor   = time.Second           // since the server refused somebody
	refusedAfter = 50 * time.Millisecond // the server is asked again, though no connection is free
)

func newCrowd() crowd { return crowd{turn: make(chan struct{}, 1), freed: make(chan struct{}, 1)} }

func (c *crowd) connection(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	var asked time.Time
	if time.Now().UnixNano() >= c.until.Load() {
		conn, err := connection(ctx, db)
		if !c.refuses(db, err) {
			return conn, err
		}
		asked = time.Now()
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, noneFree(ctx.Err(), db)
	}
	for {
		if db.Stats().Idle > 0 || time.Since(asked) > refusedAfter {
			conn, err := connection(ctx, db)
			if end := ended(ctx); err != nil && end != nil { // of dialing, to a server that was full until then
				return nil, noneFree(end, db)
			}
			if !c.refuses(db, err) {
				return conn, err
			}
			asked = time.Now()
		}
		timer := time.NewTimer(refusedAfter / 10) // the program's own work gives back unheard
		select {
		case <-c.freed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return nil, noneFree(ctx.Err(), db)
		}
	}
}

// refuses reports whether the server is full, but the pool has connections.
func (c *crowd) refuses(db *sql.DB, err error) bool {
	switch number(err) {
	case tooManyConnections, userLimit, resourceLimit:
		if db.Stats().OpenConnections > 0 {
			c.until.Store(time.Now().Add(crowdedFor).UnixNano())
			return true
		}
	}
	return false
}

// ended is the context's error, also if a deadline that a dialer looks at itself comes first.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && ctx.Err() == nil && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

func noneFree(end error, db *sql.DB) error {
	return fmt.Errorf("%w: the server admits no more connections, and none of the %d in use became free in time: raise max_connections of the server, "+
		"or let the pools of all processes together open fewer: %w", stores.ErrBusy, db.Stats().InUse, end)
}

// gaveBack tells who waits in a crowd.
func (c *crowd) gaveBack() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}
