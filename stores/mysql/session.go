package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"time"

	mysql "github.com/go-sql-driver/mysql"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/internal/sqlstore"
)

// session is a connection with a transaction for an attempt: one of the store's own, or one from
// the caller's *sql.DB, whose settings are restored at the end.
type session struct {
	store  *Store
	conn   *sql.Conn
	tx     *sql.Tx
	server uint64             // see stores.Verdict
	own    *transaction       // nil on a caller's connection
	cancel context.CancelFunc // cancels the context that database/sql watches

	dirty bool // the caller's connection has our settings
	ended bool // the store ended the transaction on the server
}

// open begins a session with a claim, or without one if claim is nil. rows and claimErr are the
// claim's result.
func (s *Store) open(ctx context.Context, claim *claimed, bound time.Duration) (ss *session, rows int64, claimErr, err error) {
	ss, err = s.opened(ctx, func(ss *session) (err error) {
		if s.own {
			rows, claimErr, err = ss.begin(ctx, claim, bound)
		} else {
			rows, claimErr, err = ss.borrow(ctx, claim, bound)
		}
		return err
	})
	return ss, rows, claimErr, err
}

// opened begins a session. It tries again if the server had closed an idle connection.
func (s *Store) opened(ctx context.Context, begin func(*session) error) (*session, error) {
	const tries = 3
	for try := 1; ; try++ {
		conn, err := s.connection(ctx, s.attempts)
		if err == nil {
			ss := &session{store: s, conn: conn}
			if err = begin(ss); err == nil {
				return ss, nil
			}
			ss.drop()
		}
		if try == tries || !errors.Is(err, driver.ErrBadConn) {
			return nil, err
		}
	}
}

// begin claims in the round trip of BEGIN.
func (ss *session) begin(ctx context.Context, claim *claimed, bound time.Duration) (rows int64, claimErr, err error) {
	b := &beginning{ctx: ctx, texts: ss.store.texts(), claim: claim, bound: bound}
	err = ss.start(ctx, b)
	return b.rows, b.err, err
}

func (ss *session) start(ctx context.Context, b *beginning) (err error) {
	ss.tx, err = ss.conn.BeginTx(context.WithValue(context.WithoutCancel(ctx), beginningKey{}, b), nil)
	if err == nil {
		ss.own, ss.server = b.tx, b.tx.conn.at.number
	}
	return err
}

// borrow prepares a caller's connection, and claims after database/sql has sent its BEGIN. The
// transaction outlives ctx, which bounds only its beginning.
func (ss *session) borrow(ctx context.Context, claim *claimed, bound time.Duration) (rows int64, claimErr, err error) {
	if ss.server, err = ss.store.servers.of(ctx, ss.store.attempts, ss.conn); err != nil {
		return 0, nil, err
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	watched, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	ss.cancel = cancel
	ss.tx, err = ss.conn.BeginTx(watched, nil)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, nil, err
	}
	return ss.prepare(ctx, claim, bound)
}

// prepare gives a caller's connection the settings of an attempt, and claims.
func (ss *session) prepare(ctx context.Context, claim *claimed, bound time.Duration) (rows int64, claimErr, err error) {
	t := ss.store.texts()
	ss.dirty, ss.ended = true, false
	if t.maria || t.procedures {
		rows, err = ss.exec(ctx, string(t.beginClaim(nil, claim, bound)))
	} else {
		for _, step := range t.begin(bound) {
			if _, err := ss.exec(ctx, step); err != nil {
				return 0, nil, err
			}
		}
		if claim != nil {
			rows, err = ss.exec(ctx, string(t.claim(nil, claim)))
		}
	}
	if claim != nil && number(err) != 0 {
		return 0, err, nil
	}
	return rows, nil, err
}

// Send implements sqlstore.Sender, before the handler runs or instead of it.
func (ss *session) Send(ctx context.Context, s sqlstore.Statement) (affected int64, err error) {
	return sqlstore.Send(context.WithValue(ctx, storeKey{}, true), ss.tx, s)
}

func (ss *session) exec(ctx context.Context, text string) (affected int64, err error) {
	return exec(ctx, ss, text)
}

// lookBack reads a key's row and rolls back, in one round trip if the server can.
func (ss *session) lookBack(ctx context.Context, consumer int64, id []byte) (inboxRow, error) {
	var row inboxRow
	t := ss.store.texts()
	if !t.maria && !t.procedures {
		_, err := ss.Send(ctx, sqlstore.Statement{Text: string(t.lookAt(nil, consumer, id)), Read: row.read})
		return row, errors.Join(err, ss.rollback(ctx))
	}
	_, err := ss.Send(ctx, sqlstore.Statement{Text: string(t.lookBack(nil, consumer, id, !ss.store.own)), Read: row.read})
	if err == nil {
		ss.ended, ss.dirty = true, false
	}
	return row, err
}

// rollback ends the transaction and restores a caller's connection. The session can then be
// prepared again.
func (ss *session) rollback(ctx context.Context) error {
	if !ss.ended {
		if _, err := ss.exec(ctx, "ROLLBACK"); err != nil {
			return err
		}
		ss.ended = true
	}
	if ss.dirty {
		if _, err := ss.exec(ctx, ss.store.texts().settingsRestored); err != nil {
			return err
		}
		ss.dirty = false
	}
	return nil
}

// release gives back a connection whose transaction is not in use, even if ctx has ended.
func (ss *session) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	if ss.rollback(ctx) != nil {
		ss.drop()
		return
	}
	if ss.own != nil {
		ss.own.finished()
	}
	ss.free()
}

// free gives the transaction and the connection back to database/sql.
func (ss *session) free() {
	if ss.tx != nil {
		_ = ss.tx.Rollback()
	}
	if ss.cancel != nil {
		ss.cancel()
	}
	_ = ss.conn.Close()
	ss.store.crowd.gaveBack()
}

// drop closes a connection in an unknown state.
func (ss *session) drop() {
	if ss.own != nil {
		ss.own.cut()
		ss.own.finished()
	}
	if ss.tx != nil {
		_ = ss.tx.Rollback()
	}
	_ = ss.conn.Raw(func(any) error { return driver.ErrBadConn })
	ss.free()
}

// discard closes a connection whose driver has not returned from a call. database/sql holds the
// locks of that call, so conn.Close would wait for ever. Its place in the pool is lost.
func (ss *session) discard() {
	_ = ss.conn.Raw(func(native any) error {
		if c, ok := native.(driver.Conn); ok {
			return callback.Call("the driver", c.Close)
		}
		return nil
	})
	ss.store.crowd.gaveBack()
}

// abandon drops a connection on which the server may still be busy, and tells the server to stop:
// the key would stay held until the statement ends.
func (ss *session) abandon() {
	ss.drop()
	if ss.own == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	_ = ss.store.stop(ctx, ss.own.conn.at) // the connection may be gone already
}

// cleanupTimeout bounds work after the result is known.
const cleanupTimeout = 2 * time.Second

// errBusy reports whether the driver did not send a statement because rows are open.
func errBusy(err error) bool { return errors.Is(err, mysql.ErrBusyBuffer) }
