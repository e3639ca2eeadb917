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

// Tx is one transaction that holds a claim. Whoever lets a handler use the connection
// tells it, so that it knows what it can rely on in the end.
type Tx struct {
	sqltx.Entry

	tables   *tables.Tables
	conn     *pgx.Conn
	consumer int64
	id       []byte
	at       time.Time // in the claim's row

	gate    sqltx.Gate
	session Session
	suspect atomic.Bool // the handler had ways to end the transaction that were not watched
	outcome sqltx.Outcome
	staged  sqlstore.Staged // before COMMIT
	handed  *Handed         // the first of them
}

const pkg sqltx.Package = "postgres"

// Init makes t the transaction of a claim that was won on conn.
func (t *Tx) Init(tables *tables.Tables, conn *pgx.Conn, consumer int64, id []byte, at time.Time) {
	t.tables, t.conn, t.consumer, t.id, t.at = tables, conn, consumer, id, at
	t.session.Begin(conn.PgConn())
}

// Acquire notes that the handler uses the connection until Release. Once the
// transaction has ended nothing may pass: it would be committed by itself. The error is
// then pgx.ErrTxClosed or stores.ErrTxEnded.
func (t *Tx) Acquire() error {
	return t.gate.Acquire(pgx.ErrTxClosed, func(alone bool) bool { return alone && t.conn.PgConn().TxStatus() == 'I' })
}

// Release ends what Acquire has begun, with the error of the statement. Of an aborted
// transaction the server takes nothing but its end and ROLLBACK TO SAVEPOINT: one that goes
// on has undone what had failed before.
func (t *Tx) Release(err error) {
	t.gate.Release(func(first error, alone bool) error {
		if pg := t.conn.PgConn(); alone && !pg.IsClosed() && pg.TxStatus() == 'T' {
			return nil
		}
		return cmp.Or(first, err)
	})
}

// Distrust notes that the handler is handed something that goes around the
// bookkeeping, so that the commit asks whose transaction it is. It reports false if the
// attempt is over.
func (t *Tx) Distrust() bool {
	t.suspect.Store(true)
	return !t.gate.Closed()
}

// Bare is Distrust of a handler that is handed the connection itself, with which it may
// change the session, too.
func (t *Tx) Bare() bool {
	t.Mark()
	return t.Distrust()
}

// Mark notes that the session may have been changed, so that the connection serves no
// other message.
func (t *Tx) Mark() { t.session.marked.Store(true) }

// retire closes a connection whose session may have been changed. Nobody waits for that:
// the message has its answer, and the next one gets another connection.
func (t *Tx) retire(ctx context.Context) {
	if pg := t.conn.PgConn(); !pg.IsClosed() && t.session.Changed(pg) {
		t.drop(ctx)
	}
}

// Inspect says whether a statement of the handler may be sent: not if it would end the
// transaction (stores.ErrTxManaged), which dooms the attempt.
func (t *Tx) Inspect(sql string) error { return t.inspect(sql, true) }

// inspect knows whether the server may take several statements in one text, and names of prepared
// ones.
func (t *Tx) inspect(sql string, simple bool) error {
	r := Read(sql)
	if r.Control {
		t.Doom(stores.ErrTxManaged)
		return stores.ErrTxManaged
	}
	// A single word may be the name of a statement that was prepared elsewhere.
	word := simple && isWord(sql)
	if simple && r.Several || word {
		t.Distrust()
	}
	t.session.read(r, word)
	return nil
}

// Admit inspects a statement that is sent at once. nil stands for an Acquire.
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

// Escaped implements stores.Escapable. Attempts of one key follow each other, so the
// time of the claim tells their rows apart. (A transaction id would not do: a server
// gives those again that it had not written down when it was killed.)
func (t *Tx) Escaped(ctx context.Context) (bool, error) {
	row, err := t.tables.SettledRow(ctx, t.consumer, t.id)
	return row.Found && row.CompletedAt.Equal(t.at), err
}

// Interrupted implements stores.Interruptible: it judges the first statement that
// failed and that no savepoint has undone, or COMMIT.
func (t *Tx) Interrupted() error { return pkg.Interrupted(t.gate.Failure(), tables.Interruption) }

// Refuses implements stores.Refusing.
func (*Tx) Refuses(err error) bool { return tables.RefusesValue(err) }

// aborted is ErrTxAborted with what the handler has hidden.
func (t *Tx) aborted() error { return sqltx.Aborted(t.gate.Failure()) }

// Over reports whether the transaction has ended, or is about to.
func (t *Tx) Over() bool { return t.gate.Closed() }
