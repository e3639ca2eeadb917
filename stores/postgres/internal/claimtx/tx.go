package claimtx

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Tx is one transaction that holds a claim. The wrappers that handlers use report every use of the
// connection to it, so that it knows at the end what it can rely on.
type Tx struct {
	sqltx.Entry

	tables   *tables.Tables
	conn     *pgx.Conn
	consumer int64
	id       []byte
	at       time.Time // the time in the claim's row

	gate    sqltx.Gate
	session Session
	suspect atomic.Bool // the handler could have ended the transaction unwatched
	outcome sqltx.Outcome
	staged  sqlstore.Staged // sent before COMMIT
	handed  *Handed         // the queued statements, which are the first of staged
}

const pkg sqltx.Package = "postgres"

// Init makes t the transaction of a claim that was won on conn.
func (t *Tx) Init(tables *tables.Tables, conn *pgx.Conn, consumer int64, id []byte, at time.Time) {
	t.tables, t.conn, t.consumer, t.id, t.at = tables, conn, consumer, id, at
	t.session.Begin(conn.PgConn())
}

// join makes t part of a transaction that holds several claims.
func (t *Tx) join(base *Tx, id []byte) {
	t.tables, t.conn, t.consumer, t.id, t.at = base.tables, base.conn, base.consumer, id, base.at
	t.session.before = base.session.before
}

// Acquire notes that the handler uses the connection until Release. After the end of the
// transaction nothing may be sent, because it would commit by itself. Then the error is
// pgx.ErrTxClosed or stores.ErrTxEnded.
func (t *Tx) Acquire() error {
	return t.gate.Acquire(pgx.ErrTxClosed, func(alone bool) bool { return alone && t.conn.PgConn().TxStatus() == 'I' })
}

// Release ends what Acquire began, with the statement's error. In an aborted transaction the server
// accepts only its end and ROLLBACK TO SAVEPOINT, so a statement that succeeds shows that earlier
// failures were undone.
func (t *Tx) Release(err error) {
	t.gate.Release(func(first error, alone bool) error {
		if pg := t.conn.PgConn(); alone && !pg.IsClosed() && pg.TxStatus() == 'T' {
			return nil
		}
		return cmp.Or(first, err)
	})
}

// Distrust notes that the handler gets something that bypasses the checks, so that the commit asks
// whose transaction it is. It reports false if the attempt is over.
func (t *Tx) Distrust() bool {
	t.suspect.Store(true)
	return !t.gate.Closed()
}

// Bare is Distrust for a handler that gets the connection itself, and so may also change the
// session.
func (t *Tx) Bare() bool {
	t.Mark()
	return t.Distrust()
}

// Mark notes that the session may have changed, so that the connection serves no other message.
func (t *Tx) Mark() { t.session.marked.Store(true) }

// retire closes a connection whose session may have changed. Nothing waits for it: the message has
// its result, and the next one gets another connection.
func (t *Tx) retire(ctx context.Context) {
	if pg := t.conn.PgConn(); !pg.IsClosed() && t.session.Changed(pg) {
		t.drop(ctx)
	}
}

// Inspect refuses a statement that would end the transaction, with stores.ErrTxManaged, and dooms
// the attempt.
func (t *Tx) Inspect(sql string) error {
	_, err := t.inspect(sql, true)
	return err
}

// inspect: simple means that the server accepts several statements in one text, and names of
// prepared statements.
func (t *Tx) inspect(sql string, simple bool) (Reading, error) {
	r := Read(sql)
	if r.Control {
		t.Doom(stores.ErrTxManaged)
		return r, stores.ErrTxManaged
	}
	// A single word may be the name of a statement that was prepared elsewhere.
	word := simple && isWord(sql)
	if simple && r.Several || word {
		t.Distrust()
	}
	t.session.read(r, word)
	return r, nil
}

// Admit inspects a statement that is sent now. After nil the attempt is acquired.
func (t *Tx) Admit(sql string) error {
	if err := t.Inspect(sql); err != nil {
		return err
	}
	return t.Acquire()
}

// Emit implements stores.Emitter.
func (t *Tx) Emit(outputs []stores.Output) error {
	if err := t.outcome.Open(pkg); err != nil {
		return err
	}
	return t.tables.Stage(&t.staged, outputs)
}

// Escaped implements stores.Escapable. Attempts of one key follow each other, so the time of the
// claim distinguishes their rows. (A transaction id would not: after a crash the server reuses ids
// that were not on disk.)
func (t *Tx) Escaped(ctx context.Context) (bool, error) {
	row, err := t.tables.SettledRow(ctx, t.consumer, t.id)
	return row.Found && row.CompletedAt.Equal(t.at), err
}

// Interrupted implements stores.Interruptible. It goes by the first failed statement that no
// savepoint undid, or by COMMIT.
func (t *Tx) Interrupted() error { return pkg.Interrupted(t.gate.Failure(), tables.InterruptsAttempt) }

// Refuses implements stores.Refusing.
func (*Tx) Refuses(err error) bool { return tables.RefusesValue(err) }

// aborted returns ErrTxAborted with the error that the handler hid.
func (t *Tx) aborted() error { return sqltx.Aborted(t.gate.Failure()) }

// Over reports whether the transaction has ended, or is about to.
func (t *Tx) Over() bool { return t.gate.Closed() }
