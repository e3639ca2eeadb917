package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// plainAttempt is a transaction on a caller's *sql.DB that holds a claim. Its statements are not
// watched.
type plainAttempt struct {
	plainTx
	sqltx.Entry

	store    *Store
	consumer int64
	claimed  stores.Claim
	server   uint64 // the server that answered the claim
	staged   sqlstore.Staged

	outcome sqltx.Outcome
	ending  *ending // the result of Commit or Rollback, once over

	mu      sync.Mutex // needed because a given-up ending goes on
	at      time.Time  // the time in the claim's row
	failure error      // the handler's or COMMIT's
}

var (
	_ stores.Attempt       = (*plainAttempt)(nil)
	_ stores.Emitter       = (*plainAttempt)(nil)
	_ stores.Interruptible = (*plainAttempt)(nil)
	_ stores.Escapable     = (*plainAttempt)(nil)
	_ stores.Refusing      = (*plainAttempt)(nil)
)

// Context implements stores.Attempt.
func (a *plainAttempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, a)
}

// Native implements sqltx.Carrier.
func (a *plainAttempt) Native() *sql.Tx { return a.tx }

// Returned implements sqltx.Carrier.
func (a *plainAttempt) Returned(err error) {
	a.Entry.Returned(err)
	a.noteFailure(err)
}

// noteFailure keeps a driver's error. The handler's other errors say nothing about the database.
func (a *plainAttempt) noteFailure(err error) {
	if !tables.IsDrivers(err) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil {
		a.failure = err
	}
}

// Interrupted implements stores.Interruptible. It goes by the error of the typed handler or of
// COMMIT.
func (a *plainAttempt) Interrupted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ending != nil && a.ending.busy && errors.Is(a.failure, driver.ErrBadConn) {
		return nil // pgx returns this for a connection with open rows, which the handler left
	}
	return pkg.Interrupted(a.failure, tables.InterruptsAttempt)
}

// Refuses implements stores.Refusing.
func (*plainAttempt) Refuses(err error) bool { return tables.RefusesValue(err) }

// Escaped implements stores.Escapable. It also reports true for a handler that ended the
// transaction in SQL and may have gone on without one.
func (a *plainAttempt) Escaped(ctx context.Context) (bool, error) {
	row, err := a.store.tables.SettledRow(ctx, a.consumer, a.claimed.Key.ID)
	if err != nil || row.Found && a.wrote(&row) {
		return err == nil, err
	}
	if a.ending == nil || !a.ending.loose {
		return false, nil
	}
	return a.seal(ctx)
}

// wrote reports whether this claim wrote the row.
func (a *plainAttempt) wrote(row *sqlstore.Row) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return row.CompletedAt.Equal(a.at)
}

// seal commits the claim of a handler whose effects may be committed without it, so that no other
// delivery runs the handler.
func (a *plainAttempt) seal(ctx context.Context) (bool, error) {
	won, err := a.claim(ctx, a.store.db, &a.claimed)
	if err != nil {
		return false, a.store.tables.Explain(err)
	}
	if !won {
		return false, fmt.Errorf("postgres: %w: another transaction holds the key of a handler that ended its own", stores.ErrUnavailable)
	}
	return true, nil
}

// Commit implements stores.Attempt. A second call returns the same.
func (a *plainAttempt) Commit(ctx context.Context) error {
	return a.outcome.Commit(func() error { return a.end(ctx, a.commit) })
}

func (a *plainAttempt) commit(ctx context.Context, e *ending) error {
	doomed := a.Doomed()
	if doomed == nil {
		doomed = ctx.Err()
	}
	status := a.status()
	if !e.reach(asking) {
		<-e.judged
		return a.instead(ctx, e, errAbandoned)
	}
	switch status {
	case ended:
		return a.instead(ctx, e, errors.Join(errLoose, doomed))
	case lost, aborted:
		// The aborted or lost transaction may not be the one with the claim.
		return a.instead(ctx, e, errors.Join(stores.ErrTxAborted, sqltx.ErrEscaped, doomed))
	case busy:
		e.busy = true
		if doomed != nil || a.store.config.ProveCommit { // too late to ask anything
			return a.instead(ctx, e, errors.Join(stores.ErrTxBusy, sqltx.ErrEscaped, doomed))
		}
	case unknownStatus, running:
	}
	if doomed != nil {
		return a.instead(ctx, e, errors.Join(doomed, a.unlessOurs(ctx)))
	}
	if a.store.config.ProveCommit {
		if err := a.unlessOurs(ctx); err != nil {
			return a.instead(ctx, e, err)
		}
	}
	if err := a.emit(ctx); err != nil {
		return a.instead(ctx, e, err)
	}
	if !e.reach(committing) {
		return a.instead(ctx, e, errAbandoned)
	}
	// Without cancellation, which would end the server's wait for a synchronous standby.
	return a.committed(ctx, e, a.finish(context.WithoutCancel(ctx), e, (*sql.Tx).Commit))
}

// Emit implements stores.Emitter.
func (a *plainAttempt) Emit(outputs []stores.Output) error {
	if err := a.outcome.Open(pkg); err != nil {
		return err
	}
	return a.store.tables.Stage(&a.staged, outputs)
}

// emit writes the staged outputs. Without a proof, another transaction may get them.
func (a *plainAttempt) emit(ctx context.Context) error {
	for _, s := range a.staged {
		err := a.send(context.WithoutCancel(ctx), a.tx, s.Text, s.Args, s.Read)
		if err == nil {
			continue
		}
		a.noteFailure(err)
		if errors.Is(err, sql.ErrTxDone) || !a.store.config.ProveCommit {
			err = errors.Join(err, sqltx.ErrEscaped)
		}
		return err
	}
	return nil
}

// instead rolls back for a reason. A failed rollback also ends the transaction.
func (a *plainAttempt) instead(ctx context.Context, e *ending, reason error) error {
	ctx = context.WithoutCancel(ctx)
	e.gone.Store(errors.Is(reason, errLoose))
	_ = a.afterwards(ctx, e, reason, a.finish(ctx, e, (*sql.Tx).Rollback))
	return pkg.NotCommitted(reason)
}

// afterwards seals a claim whose effects may be committed. A handler that called Commit or Rollback
// cannot have gone on with its transaction.
func (a *plainAttempt) afterwards(ctx context.Context, e *ending, reason, rollback error) error {
	if errors.Is(reason, errLoose) && !errors.Is(rollback, sql.ErrTxDone) {
		e.loose = true
		_, _ = a.seal(ctx) // Escaped tries again
	}
	if errors.Is(rollback, sql.ErrTxDone) {
		return nil
	}
	return rollback
}

// unlessOurs returns why the running transaction may not be the one with the claim, or nil.
func (a *plainAttempt) unlessOurs(ctx context.Context) error {
	err := a.send(context.WithoutCancel(ctx), a.tx, a.store.tables.Owned(), []any{a.consumer, a.claimed.Key.ID}, nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return sqltx.ErrEscaped
	case tables.NotOurs(err):
		return errLoose
	case fromPQ(err, "there is already a query being processed"):
		return errors.Join(stores.ErrTxBusy, sqltx.ErrEscaped)
	}
	return errors.Join(stores.ErrTxAborted, sqltx.ErrEscaped, err)
}

// committed judges the driver's result of COMMIT. An error proves that nothing was committed only
// if it is the server's, or one that the driver derives from the server's answer.
func (a *plainAttempt) committed(ctx context.Context, e *ending, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return pkg.NotCommitted(sqltx.ErrEscaped)
	case errors.Is(err, pgx.ErrTxCommitRollback), saysAborted(err):
		return pkg.NotCommitted(fmt.Errorf("%w: %w", stores.ErrTxAborted, sqltx.ErrEscaped))
	case saysEnded(err):
		_ = a.afterwards(context.WithoutCancel(ctx), e, errLoose, nil)
		return pkg.NotCommitted(fmt.Errorf("%w: %w", errLoose, err))
	case tables.Expired(err):
		return pkg.NotCommitted(fmt.Errorf("%w: %w", stores.ErrTxExpired, err))
	case tables.Refused(err):
		a.noteFailure(err)
		return pkg.NotCommitted(err)
	}
	return pkg.CommitUnknown(err)
}

// lib/pq's errors about a transaction's status are not values to compare with.

// saysAborted: COMMIT was answered by a rollback, or would have been.
func saysAborted(err error) bool {
	return fromPQ(err, "could not complete operation in a failed transaction") || fromPQ(err, "unexpected command tag rollback")
}

// saysEnded: the transaction had ended, and COMMIT was not sent.
func saysEnded(err error) bool { return fromPQ(err, "unexpected transaction status ") }

func fromPQ(err error, text string) bool {
	said, ok := strings.CutPrefix(err.Error(), "pq: ")
	return ok && strings.HasPrefix(strings.ToLower(said), text)
}

// Rollback implements stores.Attempt.
func (a *plainAttempt) Rollback(ctx context.Context) error {
	return a.outcome.Rollback(pkg, func() error { return a.end(ctx, a.rollback) })
}

func (a *plainAttempt) rollback(ctx context.Context, e *ending) error {
	var doubt error
	status := a.status()
	if !e.reach(asking) {
		<-e.judged
		return a.instead(ctx, e, errAbandoned)
	}
	switch status {
	case ended:
		doubt = errLoose
	case lost, aborted:
		doubt = sqltx.ErrEscaped
	case busy:
		e.busy = true
		doubt = errors.Join(stores.ErrTxBusy, sqltx.ErrEscaped)
	case unknownStatus, running:
		doubt = a.unlessOurs(ctx)
	}
	e.gone.Store(errors.Is(doubt, errLoose))
	return errors.Join(doubt, a.afterwards(ctx, e, doubt, a.finish(ctx, e, (*sql.Tx).Rollback)))
}
