package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/stores"
)

// writer is the only way to write: one connection, one transaction at a time, in the order of the
// requests.
type writer struct {
	db   *sql.DB       // at most one connection, a *conn
	slot chan struct{} // full while a transaction is open; waiters queue in order
	busy time.Duration // how long to wait for other processes

	once   sync.Once
	closed chan struct{}
}

func newWriter(db *sql.DB, busy time.Duration) *writer {
	db.SetMaxOpenConns(1)
	return &writer{db: db, slot: make(chan struct{}, 1), busy: busy, closed: make(chan struct{})}
}

// errWait: the slot was not free in time.
var errWait = errors.New("another transaction is running")

// acquire takes the slot. If patience is not 0 it gives up after that time, with errWait.
func (w *writer) acquire(ctx context.Context, patience time.Duration) error {
	select {
	case <-w.closed:
		return stores.ErrClosed
	case <-ctx.Done():
		return w.waited(ctx)
	default:
	}
	select {
	case w.slot <- struct{}{}:
		return nil
	default:
	}
	var tired <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		tired = timer.C
	}
	select {
	case w.slot <- struct{}{}:
		return nil
	case <-tired:
		return errWait
	case <-w.closed:
		return stores.ErrClosed
	case <-ctx.Done():
		return w.waited(ctx)
	}
}

func (w *writer) waited(ctx context.Context) error {
	return fmt.Errorf("%w: %w: waiting for the writer: %w", stores.ErrUnavailable, stores.ErrBusy, context.Cause(ctx))
}

func (w *writer) release() { <-w.slot }

// patience returns until when a request that arrives now waits for other processes. So requests
// that queue for the slot meanwhile give up together, not one after the other.
func (w *writer) patience() time.Time { return time.Now().Add(w.busy) }

// begin opens a transaction; the caller holds the slot. While another process writes it calls
// locked and tries again, until ctx ends or giveUp has passed; a zero giveUp never passes. SQLite's
// own waiting would ignore ctx.
func (w *writer) begin(ctx context.Context, b *beginning, giveUp time.Time, locked func() error) (*sql.Tx, error) {
	tx, err := w.db.BeginTx(detached{context.Background(), b}, nil)
	if !isCode(err, sqlite3.SQLITE_BUSY) {
		return tx, err
	}
	if locked != nil {
		if err := locked(); err != nil {
			return nil, err
		}
	}
	err = w.whileLocked(ctx, giveUp, func() error {
		tx, err = w.db.BeginTx(detached{context.Background(), b}, nil)
		return err
	})
	return tx, err
}

// whileLocked repeats try while SQLite answers BUSY.
func (w *writer) whileLocked(ctx context.Context, giveUp time.Time, try func() error) error {
	pauses := backoff.ExponentialBackOff{
		InitialInterval: 500 * time.Microsecond, RandomizationFactor: 0.5, Multiplier: 1.5, MaxInterval: 25 * time.Millisecond,
	}
	pauses.Reset()
	for {
		err := try()
		if !isCode(err, sqlite3.SQLITE_BUSY) {
			return err
		}
		if !giveUp.IsZero() && time.Now().After(giveUp) {
			return fmt.Errorf("%w: %w: another process is writing: %w", stores.ErrUnavailable, stores.ErrBusy, err)
		}
		timer := time.NewTimer(pauses.NextBackOff())
		select {
		case <-timer.C:
		case <-w.closed:
			timer.Stop()
			return stores.ErrClosed
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w: %w: another process is writing: %w", stores.ErrUnavailable, stores.ErrBusy, context.Cause(ctx))
		}
	}
}

// write runs f in a transaction of the store and commits it durably. f must not leave rows open.
func (w *writer) write(ctx context.Context, giveUp time.Time, f func(tx *sql.Tx) error) error {
	if err := w.acquire(ctx, 0); err != nil {
		return err
	}
	defer w.release()
	var b beginning
	tx, err := w.begin(ctx, &b, giveUp, nil)
	if err != nil {
		return err
	}
	err = f(tx)
	if err == nil {
		if err = b.conn.commit(nil); errors.Is(err, stores.ErrCommitUnknown) {
			err = fmt.Errorf("%w: %w", stores.ErrUnavailable, err)
		}
	}
	b.conn.closing.Store(true)
	_ = tx.Rollback() // does nothing after a commit
	return err
}

// close refuses further transactions. An open one can still end.
func (w *writer) close() error {
	w.once.Do(func() { close(w.closed) })
	return w.db.Close()
}
