package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
)

// ending is the end of a plainAttempt, on a separate goroutine. database/sql waits, without a
// bound, for a statement that a goroutine of the handler left running, and not every driver can
// cancel it.
type ending struct {
	stage     atomic.Int32
	abandoned atomic.Bool   // it was given up
	judged    chan struct{} // closed when a given-up ending may roll back
	gone      atomic.Bool   // the handler had ended the transaction, so it is rolled back

	// Written before the goroutine ends.
	err   error
	busy  bool // rows were open at the end
	loose bool // effects may be committed without the claim
}

// The stages of an ending. One that was given up reaches no further stage.
const (
	waiting    int32 = iota // waiting for the connection
	asking                  // asking the server, or rolling back
	committing              // COMMIT may be sent
	givenUp
)

// reach reports whether the ending may go on to a stage.
func (e *ending) reach(stage int32) bool {
	for {
		now := e.stage.Load()
		if now == givenUp {
			return false
		}
		if e.stage.CompareAndSwap(now, stage) {
			return true
		}
	}
}

// giveUp keeps the ending from sending COMMIT, unless that may have been sent, and returns the
// stage it had reached.
func (e *ending) giveUp() (stage int32) {
	e.abandoned.Store(true)
	for {
		stage = e.stage.Load()
		if stage == committing || e.stage.CompareAndSwap(stage, givenUp) {
			return stage
		}
	}
}

// errAbandoned ends a given-up ending. No caller sees it.
var errAbandoned = errors.New("sqldb: the attempt was given up")

// cleanupTimeout bounds the end of an attempt whose context had already ended.
const cleanupTimeout = 2 * time.Second

// end ends the transaction.
func (a *plainAttempt) end(ctx context.Context, how func(context.Context, *ending) error) error {
	a.ending = a.endInTime(ctx, how)
	return a.ending.err
}

// endInTime runs how, and gives it up when ctx ends. An ending that was given up waits until the
// connection is free, rolls back and closes it; a COMMIT that was already sent goes on.
func (a *plainAttempt) endInTime(ctx context.Context, how func(context.Context, *ending) error) *ending {
	e, over := &ending{judged: make(chan struct{})}, make(chan struct{})
	go func() {
		defer close(over)
		drive(func() { e.err = how(ctx, e) }, func(broken error) {
			e.err, e.loose = a.left(ctx, e, e.giveUp(), broken)
			a.cancel() // drivers may honor it
			discard(a.conn)
		})
	}()
	limit := ctx
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		defer cancel()
	}
	select {
	case <-over:
		return e
	case <-limit.Done():
	}
	select {
	case <-over: // at the last moment
		return e
	default:
	}
	defer close(e.judged)
	stage, given := e.giveUp(), &ending{}
	given.err, given.loose = a.left(ctx, e, stage, context.Cause(limit))
	if stage != committing {
		a.cut()
	}
	if stage == asking {
		a.Returned(driver.ErrBadConn)
	}
	return given
}

// left returns what is known about a transaction whose ending got as far as a stage.
func (a *plainAttempt) left(ctx context.Context, e *ending, stage int32, why error) (err error, loose bool) { //nolint:revive // the error is not the result
	switch stage {
	case committing:
		return pkg.CommitUnknown(fmt.Errorf("COMMIT was not answered: %w", why)), false
	case waiting: // a goroutine of the handler still uses it
		return pkg.NotCommitted(errors.Join(stores.ErrTxBusy, sqltx.ErrEscaped)), a.sealIfFree(ctx) != nil
	}
	return pkg.NotCommitted(errors.Join(stores.ErrTxAborted, sqltx.ErrEscaped, why)), e.gone.Load()
}

// sealIfFree seals the claim of a handler that ended its transaction. We must not end that
// transaction meanwhile, because then every claim would be free. A late answer seals nothing.
func (a *plainAttempt) sealIfFree(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	seal, _, err := a.store.tryPlain(ctx, a.consumer, &a.claimed)
	if err != nil || seal == nil {
		return err
	}
	a.mu.Lock()
	a.at = seal.at
	a.mu.Unlock()
	return seal.finish(ctx, &ending{}, (*sql.Tx).Commit)
}
