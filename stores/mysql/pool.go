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

// connection takes a connection from a pool. The error says whether none became free in time.
func (s *Store) connection(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	if db == s.attempts {
		return s.crowd.connection(ctx, db)
	}
	return connection(ctx, db)
}

// on calls f with a connection that is not one of the attempts'.
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

// crowd handles a server that admits no more connections while the pool has some in use. That
// server is not down: a refused caller waits for a connection in use, one caller after the other.
type crowd struct {
	turn  chan struct{} // full while a caller waits for a connection
	freed chan struct{} // full if a connection was given back
	until atomic.Int64  // Unix nanoseconds; until then callers wait their turn
}

const (
	crowdedFor   = time.Second           // how long the server counts as full after a refusal
	refusedAfter = 50 * time.Millisecond // when the server is tried again although no connection is free
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
			if end := ended(ctx); err != nil && end != nil { // the context ended while dialing a server that was full until then
				return nil, noneFree(end, db)
			}
			if !c.refuses(db, err) {
				return conn, err
			}
			asked = time.Now()
		}
		timer := time.NewTimer(refusedAfter / 10) // connections that the program's own work gives back are not signaled
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

// refuses reports whether the server is full and the pool has connections.
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

// ended returns the context's error, even if a dialer's own deadline comes first.
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

// gaveBack wakes a waiting caller.
func (c *crowd) gaveBack() {
	select {
	case c.freed <- struct{}{}:
	default:
	}
}
