package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/millpond-go/millpond/internal/callback"
	"github.com/millpond-go/millpond/stores"
)

// Attempts on the caller's *sql.DB. The handler's *sql.Tx is not watched.

// errBroken: the driver has not returned from a call.
var errBroken = errors.New("mysql: the driver is broken")

// within calls f, and waits for it until ctx ends: a goroutine that the handler left behind may
// block f in database/sql. If f ends later, late is called. After errBroken the connection is
// discarded.
func (a *attempt) within(ctx context.Context, f func() error, late func()) (err error, inTime bool) { //nolint:revive // the error is not the result
	done := make(chan struct{})
	var result error
	go func() {
		defer close(done)
		returned := false
		result = callback.Apart("the driver", func() error {
			err := f()
			returned = true
			return err
		})
		if !returned {
			a.ss.discard()
			result, late = errors.Join(errBroken, result), func() {}
		}
	}()
	select {
	case <-done:
		return result, true
	case <-ctx.Done():
		go func() {
			<-done
			late()
		}()
		return context.Cause(ctx), false
	}
}

func (a *attempt) commitBorrowed(ctx context.Context) error {
	if doomed := a.Doomed(); doomed != nil {
		return a.refuse(ctx, doomed)
	}
	if ctx.Err() != nil {
		return a.refuse(context.WithoutCancel(ctx), ctx.Err())
	}
	err, inTime := a.within(ctx, func() error { return a.complete(ctx, a.ss.exec) }, a.ss.drop)
	switch {
	case !inTime, errors.Is(err, errBroken):
		return errors.Join(stores.ErrCommitUnknown, err)
	case errors.Is(err, sql.ErrTxDone):
		return a.refuse(ctx, stores.ErrTxEnded)
	case err != nil:
		return a.failed(ctx, err)
	}
	a.ss.ended = true
	if t := a.store.texts(); t.maria || t.procedures {
		a.ss.dirty = false
	}
	a.giveBack(ctx)
	return nil
}

// giveBack ends the transaction in database/sql's view, and restores the connection's settings if
// needed.
func (a *attempt) giveBack(ctx context.Context) {
	returned := false
	err := callback.Call("the driver", func() error {
		err := a.ss.tx.Commit()
		returned = true
		return err
	})
	switch {
	case !returned:
		a.ss.discard()
		return
	case err != nil:
		a.ss.drop()
		return
	}
	if a.ss.dirty {
		if _, err := a.ss.conn.ExecContext(ctx, a.store.texts().settingsRestored); err != nil {
			a.ss.drop()
			return
		}
	}
	a.ss.free()
}

// endBorrowed rolls back. If the handler ended the transaction, it ends the empty one that follows.
func (a *attempt) endBorrowed(ctx context.Context) error {
	err, inTime := a.within(ctx, func() error {
		a.lookForClaim(ctx, a.ss.exec)
		err := a.ss.tx.Rollback()
		if errors.Is(err, sql.ErrTxDone) {
			_, err = a.ss.conn.ExecContext(ctx, "ROLLBACK")
		}
		if err == nil {
			_, err = a.ss.conn.ExecContext(ctx, a.store.texts().settingsRestored)
		}
		return err
	}, a.ss.drop)
	switch {
	case !inTime:
		return errors.Join(stores.ErrTxBusy, err)
	case errors.Is(err, errBroken):
		return err
	case err != nil:
		a.ss.drop()
		return err
	}
	a.ss.free()
	return nil
}

// isUnsent reports whether the driver did not send a statement.
func isUnsent(err error) bool { return errors.Is(err, driver.ErrBadConn) }
