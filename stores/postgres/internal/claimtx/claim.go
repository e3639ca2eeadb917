package claimtx

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Won is a claim that was won.
type Won struct {
	Tx pgx.Tx
	At time.Time // in the claim's row; zero: the claim was not won

	server uint64
}

// Claim decides the claim on a connection that has no transaction. Without one in Won,
// or an error, it has none again. Trips: one if the claim is won, one more to see why
// not, and two more where that shows that it can be.
func Claim(ctx context.Context, conn *pgx.Conn, t *tables.Tables, consumer int64, c *stores.Claim) (Won, stores.Verdict, error) {
	won, verdict, err := Twice(c, func(c *stores.Claim) (won Won, verdict stores.Verdict, err error) {
		if won, err = try(ctx, conn, t, consumer, c); err == nil && won.Tx == nil {
			verdict, err = judgeAndRollback(ctx, conn, t, consumer, c)
		}
		verdict.Server = cmp.Or(won.server, verdict.Server)
		return won, verdict, err
	})
	if tables.Contended(err) {
		_, err = conn.Exec(ctx, "rollback")
		return Won{}, stores.Verdict{Outcome: stores.InFlight}, err
	}
	return won, verdict, err
}

// Twice tries a claim, and again what can be claimed after all: a failed message whose
// redelivery runs it, or one before which the last of its order key has ended just now. try
// returns what it has won, or else a verdict.
func Twice[A comparable](c *stores.Claim, try func(*stores.Claim) (A, stores.Verdict, error)) (A, stores.Verdict, error) {
	var none A
	won, verdict, err := try(c)
	if err == nil && won == none && verdict.Outcome == stores.Claimable {
		seen := *c
		seen.Take = verdict.Failure.Version
		var again stores.Verdict
		won, again, err = try(&seen)
		if verdict.Outcome = stores.InFlight; won == none && again.Outcome != stores.Claimable {
			verdict = again
		}
	}
	switch {
	case err != nil:
		return none, stores.Verdict{}, err
	case won != none:
		verdict.Outcome = stores.Claimed
	}
	return won, verdict, nil
}

// try sends BEGIN and the claim in one trip.
func try(ctx context.Context, conn *pgx.Conn, t *tables.Tables, consumer int64, c *stores.Claim) (Won, error) {
	var batch pgx.Batch
	batch.BeginTx(t.TxOptions())
	if c.Take == 0 {
		text, args := t.Claim(consumer, c)
		batch.Queue(text, args...)
	} else {
		if text, args := t.Bound(c); text != "" {
			batch.Queue(text, args...)
		}
		text, args := t.TakeOver(consumer, c)
		batch.Queue(text, args...)
	}
	results := conn.SendBatch(ctx, &batch)
	for range batch.Len() - 1 {
		if _, err := results.Exec(); err != nil {
			return Won{}, errors.Join(err, results.Close())
		}
	}
	var (
		at     int64 // in the row that holds the claim
		server uint64
	)
	err := results.QueryRow().Scan(&at, &server)
	taken := errors.Is(err, pgx.ErrNoRows)
	if closeErr := results.Close(); err == nil || taken {
		err = closeErr
	}
	if err != nil || taken {
		return Won{}, err
	}
	return Won{Tx: results.Tx(), At: time.UnixMicro(at), server: server}, nil
}

// judgeAndRollback reads the row that stood in the way and ends the transaction, in
// one trip. Its snapshot is newer than the row the insert met, so a row that made
// the insert fail is seen.
func judgeAndRollback(ctx context.Context, conn *pgx.Conn, t *tables.Tables, consumer int64, c *stores.Claim) (stores.Verdict, error) {
	var (
		batch pgx.Batch
		row   sqlstore.Row
		seen  tables.Seen
	)
	if text, args := t.Behind(consumer, c); text != "" {
		batch.Queue(text, args...).QueryRow(func(r pgx.Row) error { return r.Scan(&seen.Free, &seen.Behind) })
	}
	if text, args := t.Stale(consumer, c); text != "" {
		batch.Queue(text, args...).Query(func(rows pgx.Rows) error { return seen.ReadStale(rows) })
	}
	batch.Queue(t.Look(), consumer, c.Key.ID).Query(func(rows pgx.Rows) error { return row.Read(rows, &row.Server) })
	batch.Queue("rollback")
	if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
		return stores.Verdict{}, err
	}
	return tables.Judge(c, &row, seen)
}

// Abandon rolls back what a failed claim has left, where that is possible.
func Abandon(ctx context.Context, conn *pgx.Conn) {
	pg := conn.PgConn()
	if !pg.IsClosed() && pg.TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback") // whoever owns the connection closes one for which this failed
	}
}
