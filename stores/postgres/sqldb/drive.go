package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/sqlstore"
)

// A caller's driver is called on a separate goroutine, because not all drivers honor contexts.

// connect waits for a connection until ctx ends: lib/pq ignores it while it logs in, and a pooler
// may delay that for minutes. A connection that comes later is given back.
func connect(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	var (
		conn *sql.Conn
		err  error
	)
	answered := await(ctx, waited{
		call:   func() { conn, err = db.Conn(ctx) },
		broken: func(broken error) { err = broken },
		late: func() {
			if conn != nil {
				_ = conn.Close()
			}
		},
	})
	if !answered {
		return nil, sqlstore.Exhausted(ctx, db, ctx.Err())
	}
	return conn, sqlstore.Exhausted(ctx, db, err)
}

// openTx begins a transaction that lives as long as lasting, and waits for it until ctx ends:
// lib/pq sends BEGIN without checking a context. A transaction that comes later is given back.
func openTx(ctx, lasting context.Context, db *sql.DB, opts *sql.TxOptions) (*sql.Conn, *sql.Tx, error) {
	o := &opening{}
	answered := await(ctx, waited{
		call:   func() { o.begin(ctx, lasting, db, opts) },
		broken: o.broken,
		late:   o.giveBack,
	})
	switch {
	case answered:
		return o.conn, o.tx, o.err
	case o.connected.Load():
		return nil, nil, fmt.Errorf("BEGIN was not answered: %w", context.Cause(ctx))
	}
	return nil, nil, sqlstore.Exhausted(ctx, db, ctx.Err())
}

// waited is a call of the driver that somebody waits for.
type waited struct {
	call   func()
	broken func(error) // the driver panicked or exited its goroutine
	late   func()      // the call returned too late
}

// await reports whether the call returned before ctx ended.
func await(ctx context.Context, w waited) bool {
	done := make(chan struct{})
	go func() {
		defer func() {
			select {
			case done <- struct{}{}:
			case <-ctx.Done():
				w.late()
			}
		}()
		drive(w.call, w.broken)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// opening is a transaction that begins. With an error it has no connection.
type opening struct {
	connected atomic.Bool

	conn *sql.Conn
	tx   *sql.Tx
	err  error
}

func (o *opening) begin(ctx, lasting context.Context, db *sql.DB, opts *sql.TxOptions) {
	if o.conn, o.err = db.Conn(ctx); o.err != nil {
		o.err = sqlstore.Exhausted(ctx, db, o.err)
		return
	}
	o.connected.Store(true)
	if o.tx, o.err = o.conn.BeginTx(lasting, opts); o.err != nil {
		_ = o.conn.Close()
	}
}

func (o *opening) broken(err error) {
	o.err = err
	if o.conn != nil {
		discard(o.conn)
	}
}

// giveBack ends an unused transaction.
func (o *opening) giveBack() {
	if o.err != nil {
		return
	}
	drive(func() {
		_ = o.tx.Rollback()
		_ = o.conn.Close()
	}, o.broken)
}

// drive calls f, and with it the driver, and recovers. It calls broken after a panic or a
// runtime.Goexit.
func drive(f func(), broken func(error)) {
	err := errors.New("the driver exited its goroutine (runtime.Goexit)")
	defer func() {
		if err != nil {
			broken(err)
		}
	}()
	err = callback.Call("the driver", func() error { f(); return nil })
}

// discard closes a connection whose driver has not returned from a call. database/sql holds the
// locks of that call, so conn.Close would wait for ever. Its place in the pool is lost.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(driverConn any) error {
		if c, ok := driverConn.(driver.Conn); ok {
			return callback.Call("the driver", c.Close)
		}
		return nil
	})
}
