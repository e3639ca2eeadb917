package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/claimtx"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// This file is for a caller's *sql.DB, whose driver knows nothing of claims.

// beginPlain decides the claim with calls that every driver has. A first delivery takes one more
// round trip than the handler's own transaction.
func (s *Store) beginPlain(ctx context.Context, consumer int64, c *stores.Claim) (stores.Attempt, stores.Verdict, error) {
	a, verdict, err := claimtx.Twice(c, func(c *stores.Claim) (*plainAttempt, stores.Verdict, error) { return s.tryPlain(ctx, consumer, c) })
	switch {
	case tables.Contended(err):
		return nil, stores.Verdict{Outcome: stores.InFlight}, nil
	case a == nil: // not a non-nil interface around a nil pointer
		return nil, verdict, err
	}
	return a, verdict, nil
}

// tryPlain returns an attempt, or a verdict and no transaction.
func (s *Store) tryPlain(ctx context.Context, consumer int64, c *stores.Claim) (*plainAttempt, stores.Verdict, error) {
	a, err := s.open(ctx)
	if err != nil {
		return nil, stores.Verdict{}, err
	}
	a.consumer, a.claimed = consumer, *c
	a.claimed.OrderKey = nil // sealing does not wait for an order
	won, err := a.claim(ctx, a.tx, c)
	if err == nil && won {
		return a, stores.Verdict{Server: a.server}, nil
	}
	var verdict stores.Verdict
	if err == nil {
		verdict, err = a.judge(ctx, c)
	}
	return nil, verdict, errors.Join(err, a.finish(ctx, &ending{}, (*sql.Tx).Rollback))
}

// open begins a transaction that outlives ctx.
func (s *Store) open(ctx context.Context) (*plainAttempt, error) {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	conn, tx, err := openTx(ctx, lasting, s.db, &sql.TxOptions{Isolation: s.level()})
	if err == nil && !stop() { // already being rolled back
		_, _ = tx.Rollback(), conn.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	a := &plainAttempt{store: s, plainTx: plainTx{conn: conn, tx: tx, cancel: cancel}}
	_ = conn.Raw(func(driverConn any) error {
		if native, ok := driverConn.(pgxConn); ok {
			pg := native.Conn().PgConn()
			a.session.Begin(pg)
			a.socket = pg.Conn()
		}
		return nil
	})
	return a, nil
}

// claim reports whether the claim inserted or took over the row.
func (a *plainAttempt) claim(ctx context.Context, on sqlstore.Conn, c *stores.Claim) (won bool, err error) {
	text, args := a.store.tables.Claim(a.consumer, c)
	if c.Take != 0 {
		if text, args := a.store.tables.Bound(c); text != "" {
			if err := a.send(ctx, on, text, args, nil); err != nil {
				return false, err
			}
		}
		text, args = a.store.tables.TakeOver(a.consumer, c)
	}
	var at int64
	err = a.send(ctx, on, text, args, sqlstore.ReadFirst(&won, &at, &a.server))
	if at != 0 { // the claim may be won even if the answer was cut short
		a.mu.Lock()
		a.at = time.UnixMicro(at)
		a.mu.Unlock()
	}
	if err == nil && won && c.Take != 0 {
		text, args = a.store.tables.StepsGone(a.consumer, c)
		err = a.send(ctx, on, text, args, nil)
	}
	return won && err == nil, err
}

// send sends a statement in one round trip: pgx prepares statements that it sees often, and other
// drivers prepare each one that has arguments.
func (a *plainAttempt) send(ctx context.Context, on sqlstore.Conn, text string, args []any, read func(tables.Rows) error) error {
	if !a.store.isPgx {
		text, args = claimtx.Literal(text, args), nil
	}
	_, err := send(ctx, on, tables.Statement{Text: text, Args: args, Read: read})
	return err
}

// judge reads the row that prevented the claim.
func (a *plainAttempt) judge(ctx context.Context, c *stores.Claim) (stores.Verdict, error) {
	var (
		row   sqlstore.Row
		seen  tables.Seen
		asked bool
	)
	if text, args := a.store.tables.Behind(a.consumer, c); text != "" {
		if err := a.send(ctx, a.tx, text, args, sqlstore.ReadFirst(&asked, &seen.Free, &seen.Behind)); err != nil {
			return stores.Verdict{}, err
		}
	}
	if text, args := a.store.tables.Stale(a.consumer, c); text != "" {
		if err := a.send(ctx, a.tx, text, args, seen.ReadStale); err != nil {
			return stores.Verdict{}, err
		}
	}
	err := a.send(ctx, a.tx, a.store.tables.Look(), []any{a.consumer, a.claimed.Key.ID}, func(rows tables.Rows) error { return row.Read(rows, &row.Server) })
	if err != nil {
		return stores.Verdict{}, err
	}
	return tables.Judge(c, &row, seen)
}

// errLoose is ErrEscaped for a handler that may have gone on without a transaction, whose effects
// may be committed without the claim.
var errLoose = fmt.Errorf("%w, and may have written without it", sqltx.ErrEscaped)

const pkg sqltx.Package = "postgres"
