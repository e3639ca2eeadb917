package claimtx

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Won is a claim that was won.
type Won struct {
	Tx pgx.Tx
	At time.Time // the time in the claim's row; zero: the claim was not won

	server uint64
}

// Claim decides the claim on a connection without a transaction. If the claim is not won, or after
// an error, the connection again has none. It takes one round trip if the claim is won, a second
// one to find out why not, and one or two more if the claim can be won after all.
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

// Twice tries a claim, and tries again if it can be won after all: for a failed message that is
// redelivered, or one whose predecessor in its order key has just ended. try returns what it won,
// or a verdict.
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

// try sends BEGIN and the claim in one round trip.
func try(ctx context.Context, conn *pgx.Conn, t *tables.Tables, consumer int64, c *stores.Claim) (Won, error) {
	var (
		at     int64 // the time in the claim's row
		server uint64
		won    bool
		sent   = make([]tables.Statement, 1, 4)
		read   = sqlstore.ReadFirst(&won, &at, &server)
	)
	sent[0].Text = t.BeginText()
	if c.Take == 0 {
		text, args := t.Claim(consumer, c)
		sent = append(sent, tables.Statement{Text: text, Args: args, Read: read})
	} else {
		if text, args := t.Bound(c); text != "" {
			sent = append(sent, tables.Statement{Text: text, Args: args})
		}
		text, args := t.TakeOver(consumer, c)
		sent = append(sent, tables.Statement{Text: text, Args: args, Read: read})
		text, args = t.StepsGone(consumer, c)
		sent = append(sent, tables.Statement{Text: text, Args: args})
	}
	tx, err := send(ctx, conn, t.TxOptions(), sent)
	if err != nil || !won {
		return Won{}, err
	}
	return Won{Tx: tx, At: time.UnixMicro(at), server: server}, nil
}

// send sends BEGIN and statements in one round trip, and returns the transaction. (A batch of the
// driver would begin its own.)
func send(ctx context.Context, conn *pgx.Conn, begin pgx.TxOptions, statements []tables.Statement) (pgx.Tx, error) {
	switch l, err := linkTo(ctx, conn); {
	case err != nil:
		return nil, err
	case l != nil:
		err := l.exchange(ctx, conn.PgConn(), statements...)
		if !tables.NotPrepared(err) {
			return l.tx, err
		}
		if _, err := conn.Exec(ctx, "rollback"); err != nil {
			return nil, err
		}
	}
	var batch pgx.Batch
	batch.BeginTx(begin)
	queueAll(&batch, statements[1:])
	results := conn.SendBatch(ctx, &batch)
	return results.Tx(), results.Close()
}

func queueAll(batch *pgx.Batch, statements []tables.Statement) {
	for _, s := range statements {
		queued := batch.Queue(s.Text, s.Args...)
		if s.Read != nil {
			queued.Query(func(rows pgx.Rows) error { return s.Read(rows) })
		}
	}
}

// judgeAndRollback reads the row that prevented the claim and ends the transaction, in one round
// trip. Its snapshot is newer than the insert's, so it sees the row that made the insert fail.
func judgeAndRollback(ctx context.Context, conn *pgx.Conn, t *tables.Tables, consumer int64, c *stores.Claim) (stores.Verdict, error) {
	var (
		asked bool
		found sqlstore.Row
		seen  tables.Seen
		sent  = make([]tables.Statement, 0, 4)
	)
	if text, args := t.Behind(consumer, c); text != "" {
		sent = append(sent, tables.Statement{Text: text, Args: args, Read: sqlstore.ReadFirst(&asked, &seen.Free, &seen.Behind)})
	}
	if text, args := t.Stale(consumer, c); text != "" {
		sent = append(sent, tables.Statement{Text: text, Args: args, Read: seen.ReadStale})
	}
	sent = append(sent,
		tables.Statement{Text: t.Look(), Args: []any{consumer, c.Key.ID}, Read: func(rows tables.Rows) error { return found.Read(rows, &found.Server) }},
		tables.Statement{Text: "rollback"})
	if err := sendAll(ctx, conn, sent); err != nil {
		return stores.Verdict{}, err
	}
	return tables.Judge(c, &found, seen)
}

// sendAll sends statements in one round trip.
func sendAll(ctx context.Context, conn *pgx.Conn, statements []tables.Statement) error {
	switch l, err := linkTo(ctx, conn); {
	case err != nil:
		return err
	case l != nil:
		return l.exchange(ctx, conn.PgConn(), statements...)
	}
	var batch pgx.Batch
	queueAll(&batch, statements)
	return conn.SendBatch(ctx, &batch).Close()
}

// Abandon rolls back a failed claim's transaction, if that is possible.
func Abandon(ctx context.Context, conn *pgx.Conn) {
	pg := conn.PgConn()
	if !pg.IsClosed() && pg.TxStatus() != 'I' {
		_, _ = conn.Exec(ctx, "rollback") // if this fails, the owner closes the connection
	}
}
