package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// attempt is one transaction that holds a claim. The handler uses it through tx.
type attempt struct {
	store    *Store
	conn     *pgxpool.Conn
	consumer int32
	id       []byte
	at       time.Time // in the claim's row
	entry    sqlstore.Entry
	tx       managedTx

	// A handler may leave goroutines and rows behind. They must never touch the
	// connection once it belongs to somebody else, and looking at a connection in
	// use is a data race; so its use is counted here.
	mu      sync.Mutex
	over    bool
	result  error // of Commit, once over
	using   int   // statements and rows in use
	suspect bool  // the handler had ways to end the transaction that were not watched
	failure error // of the first statement that failed, for ErrTxAborted to name
}

var (
	_ stores.Attempt       = (*attempt)(nil)
	_ stores.Interruptible = (*attempt)(nil)
	_ stores.Escapable     = (*attempt)(nil)
)

func newAttempt(s *Store, conn *pgxpool.Conn, tx pgx.Tx, consumer int32, id []byte, at time.Time) *attempt {
	a := &attempt{store: s, conn: conn, consumer: consumer, id: id, at: at}
	a.tx = managedTx{attempt: a, tx: tx}
	return a
}

type attemptKey struct{}

// Context implements stores.Attempt.
func (a *attempt) Context(parent context.Context) context.Context {
	return context.WithValue(parent, attemptKey{}, a)
}

// acquire notes that the handler uses the connection until release. Once the
// transaction has ended nothing may pass: it would be committed by itself.
func (a *attempt) acquire() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return pgx.ErrTxClosed
	}
	if a.using == 0 && a.conn.Conn().PgConn().TxStatus() == 'I' {
		return stores.ErrTxEnded
	}
	a.using++
	return nil
}

func (a *attempt) release(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.using--
	if a.failure == nil && !a.over { // afterwards it is our own doing
		a.failure = err
	}
}

// note remembers an error as the first failure of the attempt, if it is.
func (a *attempt) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil {
		a.failure = err
	}
}

// Escaped implements stores.Escapable. Attempts of one key follow each other, so the
// time of the claim tells their rows apart. (A transaction id would not do: a server
// gives those again that it had not written down when it was killed.)
func (a *attempt) Escaped(ctx context.Context) (bool, error) {
	row, err := a.store.settledRow(ctx, a.consumer, a.id)
	return row.found && row.CompletedAt.Equal(a.at), err
}

// Interrupted implements stores.Interruptible: it judges the first statement that
// failed, or COMMIT.
func (a *attempt) Interrupted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if interruption(a.failure) {
		return fmt.Errorf("postgres: the attempt was interrupted: %w", a.failure)
	}
	return nil
}

// aborted is ErrTxAborted with what the handler has hidden.
func (a *attempt) aborted() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failure == nil {
		return stores.ErrTxAborted
	}
	return fmt.Errorf("%w: %w", stores.ErrTxAborted, a.failure)
}

// distrust notes that the handler is handed something that goes around the
// bookkeeping. It reports false if the attempt is over.
func (a *attempt) distrust() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.suspect = true
	return !a.over
}

// close lets no more statements of the handler pass. idle is false if some still
// run.
func (a *attempt) close() (already, idle, suspect bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	already, a.over = a.over, true
	return already, a.using == 0, a.suspect
}

// Commit implements stores.Attempt. Called again it returns the same.
func (a *attempt) Commit(ctx context.Context) error {
	already, idle, suspect := a.close()
	if !already {
		a.result = a.commit(ctx, idle, suspect)
	}
	return a.result
}

func (a *attempt) commit(ctx context.Context, idle, suspect bool) error {
	// Of an unwatched transaction only the server can say whether it is still ours.
	var doubt error
	if suspect {
		doubt = errEscaped
	}
	if !idle {
		a.cut()
		return notCommitted(errors.Join(stores.ErrTxBusy, doubt))
	}
	pg := a.conn.Conn().PgConn()
	doomed := a.entry.Doomed()
	switch {
	case pg.IsClosed():
		a.conn.Release()
		return notCommitted(errors.Join(a.aborted(), doubt))
	case pg.IsBusy():
		a.cut()
		return notCommitted(errors.Join(stores.ErrTxBusy, doubt))
	case pg.TxStatus() == 'I':
		a.conn.Release()
		return notCommitted(errors.Join(errEscaped, doomed))
	case pg.TxStatus() == 'E':
		return notCommitted(errors.Join(a.aborted(), doomed, doubt, a.end(ctx)))
	case doomed != nil:
		return notCommitted(errors.Join(doomed, doubt, a.end(ctx)))
	case ctx.Err() != nil:
		return notCommitted(errors.Join(ctx.Err(), doubt, a.end(context.WithoutCancel(ctx))))
	}
	if suspect {
		return a.commitIfOurs(ctx)
	}
	tag, err := a.conn.Exec(ctx, "commit")
	return a.committed(ctx, tag, err)
}

// commitIfOurs commits only if the transaction that runs is the one that wrote the
// claim's row; the check and COMMIT share a trip.
func (a *attempt) commitIfOurs(ctx context.Context) error {
	var batch pgx.Batch
	batch.Queue(a.store.sql.owned, a.consumer, a.id)
	batch.Queue("commit")
	results := a.conn.SendBatch(ctx, &batch)
	_, err := results.Exec()
	if err != nil {
		_ = results.Close()
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == divisionByZero {
			return notCommitted(errors.Join(errEscaped, a.end(ctx)))
		}
		return a.committed(ctx, pgconn.CommandTag{}, err)
	}
	tag, err := results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return a.committed(ctx, tag, err)
}

// committed judges the answer to a COMMIT that was sent. Only the tag COMMIT proves
// a commit, and only an ERROR of the server, or the tag ROLLBACK, disproves it: what
// the client reports about a broken connection does not tell a lost request from a
// lost reply.
func (a *attempt) committed(ctx context.Context, tag pgconn.CommandTag, err error) error {
	if err == nil {
		a.conn.Release()
		switch tag.String() {
		case "COMMIT":
			return nil
		case "ROLLBACK":
			return notCommitted(a.aborted())
		}
		return fmt.Errorf("postgres: %w: COMMIT was answered by %q", stores.ErrCommitUnknown, tag)
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pgErr.Code == idleInTransaction: // said before COMMIT was read
			a.drop(ctx)
			return notCommitted(fmt.Errorf("%w: %w", stores.ErrTxExpired, err))
		case pgErr.SeverityUnlocalized == "ERROR" && pgErr.Code != completionUnknown:
			a.note(err)
			return notCommitted(errors.Join(err, a.end(ctx)))
		}
	}
	a.drop(ctx)
	return fmt.Errorf("postgres: %w: %w", stores.ErrCommitUnknown, err)
}

// Rollback implements stores.Attempt.
func (a *attempt) Rollback(ctx context.Context) error {
	already, idle, suspect := a.close()
	if already {
		return nil
	}
	a.result = notCommitted(errors.New("the attempt was rolled back"))
	if !idle {
		a.cut()
		err := fmt.Errorf("postgres: rollback: %w", stores.ErrTxBusy)
		if suspect {
			err = errors.Join(err, errEscaped)
		}
		return err
	}
	ours := !suspect || a.stillOurs(ctx)
	err := a.end(ctx)
	if !ours {
		err = errors.Join(fmt.Errorf("postgres: rollback: %w", errEscaped), err)
	}
	return err
}

// stillOurs reports whether the transaction that runs is the one that wrote the
// claim's row. Of one that has failed nothing can be asked, nor of a lost connection.
func (a *attempt) stillOurs(ctx context.Context) bool {
	pg := a.conn.Conn().PgConn()
	if pg.IsClosed() || pg.IsBusy() || pg.TxStatus() != 'T' {
		return false
	}
	_, err := a.conn.Exec(ctx, a.store.sql.owned, a.consumer, a.id)
	return err == nil
}

// end rolls back what is open and gives the connection back.
func (a *attempt) end(ctx context.Context) error {
	pg := a.conn.Conn().PgConn()
	if pg.IsClosed() || pg.TxStatus() == 'I' {
		a.conn.Release()
		return nil
	}
	if pg.IsBusy() {
		a.cut()
		return nil
	}
	if _, err := a.conn.Exec(ctx, "rollback"); err != nil {
		a.drop(ctx)
		return fmt.Errorf("postgres: rollback: %w", err)
	}
	a.conn.Release()
	return nil
}

// drop closes a connection of which nothing is known any more.
func (a *attempt) drop(ctx context.Context) {
	_ = a.conn.Conn().Close(ctx)
	a.conn.Release()
}

// cut takes a connection that is in use away from the pool and closes its socket,
// the one thing that is safe to do while another goroutine reads from it. The server
// then rolls back.
func (a *attempt) cut() {
	_ = a.conn.Hijack().PgConn().Conn().Close()
}

// errEscaped: the transaction may have been ended, and nobody was watching.
var errEscaped = fmt.Errorf("%w: %w", stores.ErrTxEnded, stores.ErrTxEscaped)

func notCommitted(err error) error {
	return fmt.Errorf("postgres: %w: %w", stores.ErrNotCommitted, err)
}
