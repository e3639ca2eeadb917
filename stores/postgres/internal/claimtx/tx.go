package claimtx

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Tx is one transaction that holds a claim. Whoever lets a handler use the connection
// tells it, so that it knows what it can rely on in the end.
type Tx struct {
	// Entry is what is known of the handler's conduct beside its statements.
	Entry sqlstore.Entry

	tables   *tables.Tables
	conn     *pgx.Conn
	consumer int32
	id       []byte
	at       time.Time // in the claim's row
	session  Session

	// A handler may leave goroutines and rows behind. They must never touch the
	// connection once it belongs to somebody else, and looking at a connection in
	// use is a data race; so its use is counted here.
	mu      sync.Mutex
	over    bool
	result  error // of Commit, once over
	using   int   // statements and rows in use
	suspect bool  // the handler had ways to end the transaction that were not watched
	marked  bool  // the handler may have changed the session
	strayed bool  // the handler may have set the search_path
	failure error // of the first statement that failed and was not undone since
}

// Init makes t the transaction of a claim that was won on conn.
func (t *Tx) Init(tables *tables.Tables, conn *pgx.Conn, consumer int32, id []byte, at time.Time) {
	t.tables, t.conn, t.consumer, t.id, t.at = tables, conn, consumer, id, at
	t.session.Begin(conn.PgConn())
}

// Acquire notes that the handler uses the connection until Release. Once the
// transaction has ended nothing may pass: it would be committed by itself. The error is
// then pgx.ErrTxClosed or stores.ErrTxEnded.
func (t *Tx) Acquire() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return pgx.ErrTxClosed
	}
	if t.using == 0 && t.conn.PgConn().TxStatus() == 'I' {
		return stores.ErrTxEnded
	}
	t.using++
	return nil
}

// Release ends what Acquire has begun, with the error of the statement. Of an aborted
// transaction the server takes nothing but its end and ROLLBACK TO SAVEPOINT: one that goes
// on has undone what had failed before.
func (t *Tx) Release(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.using--
	switch {
	case t.over: // it is our own doing
	case t.using == 0 && t.goesOn():
		t.failure = nil
	case t.failure == nil:
		t.failure = err
	}
}

// goesOn reports whether the server takes more statements. Nobody may use the connection.
func (t *Tx) goesOn() bool {
	pg := t.conn.PgConn()
	return !pg.IsClosed() && pg.TxStatus() == 'T'
}

// Distrust notes that the handler is handed something that goes around the
// bookkeeping, so that the commit asks whose transaction it is. It reports false if the
// attempt is over.
func (t *Tx) Distrust() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspect = true
	return !t.over
}

// Bare is Distrust of a handler that is handed the connection itself, with which it may
// change the session, too.
func (t *Tx) Bare() bool {
	t.Mark()
	return t.Distrust()
}

// Mark notes that the session may have been changed, so that the connection serves no
// other message.
func (t *Tx) Mark() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.marked = true
}

// retire closes a connection whose session may have been changed. Nobody waits for that:
// the message has its answer, and the next one gets another connection.
func (t *Tx) retire(ctx context.Context) {
	t.mu.Lock()
	marked := t.marked
	t.mu.Unlock()
	if pg := t.conn.PgConn(); !pg.IsClosed() && (marked || t.session.Changed(pg)) {
		t.drop(ctx)
	}
}

// Inspect says whether a statement of the handler may be sent: not if it would end the
// transaction (stores.ErrTxManaged), which dooms the attempt.
func (t *Tx) Inspect(sql string) error {
	r := Read(sql)
	if r.Control {
		t.Entry.Doom(stores.ErrTxManaged)
		return stores.ErrTxManaged
	}
	// A single word may be the name of a statement that was prepared elsewhere.
	word := isWord(sql)
	if r.Several || word {
		t.Distrust()
	}
	if r.Session && !word || t.makesAnywhere(r) {
		t.Mark()
	}
	return nil
}

// makesAnywhere reports whether a statement makes something where the search_path says that
// the handler has set: pg_temp may be first in it, and belongs to the session.
func (t *Tx) makesAnywhere(r Reading) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strayed = t.strayed || r.Path
	return t.strayed && r.Creates
}

// Admit inspects a statement that is sent at once. nil stands for an Acquire.
func (t *Tx) Admit(sql string) error {
	if err := t.Inspect(sql); err != nil {
		return err
	}
	return t.Acquire()
}

// note remembers an error as the first failure of the attempt, if it is.
func (t *Tx) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		t.failure = err
	}
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
func (t *Tx) Interrupted() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tables.Interruption(t.failure) {
		return fmt.Errorf("postgres: the attempt was interrupted: %w", t.failure)
	}
	return nil
}

// Refuses implements stores.Refusing.
func (*Tx) Refuses(err error) bool { return tables.RefusesValue(err) }

// aborted is ErrTxAborted with what the handler has hidden.
func (t *Tx) aborted() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure == nil {
		return stores.ErrTxAborted
	}
	return fmt.Errorf("%w: %w", stores.ErrTxAborted, t.failure)
}

// close lets no more statements of the handler pass. idle is false if some still
// run.
func (t *Tx) close() (already, idle, suspect bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	already, t.over = t.over, true
	return already, t.using == 0, t.suspect
}

// Over reports whether the transaction has ended, or is about to.
func (t *Tx) Over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// errEscaped: the transaction may have been ended, and nobody was watching.
var errEscaped = fmt.Errorf("%w: %w", stores.ErrTxEnded, stores.ErrTxEscaped)

func notCommitted(err error) error {
	return fmt.Errorf("postgres: %w: %w", stores.ErrNotCommitted, err)
}

var errRolledBack = errors.New("the attempt was rolled back")
