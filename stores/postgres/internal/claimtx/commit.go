package claimtx

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/millpond-go/millpond/internal/sqltx"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// Left is the state of the connection after Commit or Rollback.
type Left uint8

const (
	// Already: the transaction had already ended; nothing was done.
	Already Left = iota
	// Usable: the connection has no transaction. It is closed if its session may have changed.
	Usable
	// InUse: a goroutine still reads from the connection. Only closing its socket is safe, which
	// the server takes as a rollback.
	InUse
)

// Commit implements stores.Attempt. A second call returns the same.
func (t *Tx) Commit(ctx context.Context) (left Left, err error) {
	err = t.outcome.Commit(func() (err error) {
		if left, err = t.commit(ctx, t.gate.Close(), t.suspect.Load()); left == Usable {
			t.retire(ctx)
		}
		return err
	})
	return left, err
}

func (t *Tx) commit(ctx context.Context, idle, suspect bool) (Left, error) {
	// If statements were not watched, only the server knows whether the transaction is still ours.
	var doubt error
	if suspect {
		doubt = sqltx.ErrEscaped
	}
	if !idle {
		return InUse, pkg.NotCommitted(errors.Join(stores.ErrTxBusy, doubt))
	}
	pg := t.conn.PgConn()
	doomed := t.Doomed()
	switch {
	case pg.IsClosed():
		return Usable, pkg.NotCommitted(errors.Join(t.aborted(), doubt))
	case pg.IsBusy():
		return InUse, pkg.NotCommitted(errors.Join(stores.ErrTxBusy, doubt))
	case pg.TxStatus() == 'I':
		return Usable, pkg.NotCommitted(errors.Join(sqltx.ErrEscaped, doomed))
	case pg.TxStatus() == 'E':
		return Usable, pkg.NotCommitted(errors.Join(t.aborted(), doomed, doubt, t.end(ctx)))
	case doomed != nil:
		return Usable, pkg.NotCommitted(errors.Join(doomed, doubt, t.end(ctx)))
	case ctx.Err() != nil:
		return Usable, pkg.NotCommitted(errors.Join(ctx.Err(), doubt, t.end(context.WithoutCancel(ctx))))
	}
	return Usable, t.send(ctx, pg, suspect)
}

// send sends the staged statements and COMMIT in one round trip. If suspect, a check goes first,
// that the running transaction wrote the claim's row.
func (t *Tx) send(ctx context.Context, pg *pgconn.PgConn, suspect bool) error {
	staged, first := t.staged, 0 // the queued statements
	if suspect {
		first = 1
		staged = slices.Insert(slices.Clip(staged), 0, tables.Statement{Text: t.tables.Owned(), Args: []any{t.consumer, t.id}})
	}
	a, err := sendCommit(ctx, pg, t.link(), staged)
	switch at := a.done - first; {
	case at < 0 && tables.NotOurs(err):
		return pkg.NotCommitted(errors.Join(sqltx.ErrEscaped, t.end(ctx)))
	case err != nil && tables.Refused(err) && t.handed != nil && 0 <= at && at < len(t.handed.Statements):
		err = t.handed.failed(at, err)
		t.gate.Fail(err)
		return pkg.NotCommitted(errors.Join(err, t.end(ctx)))
	}
	return t.committed(ctx, a.tag, err)
}

// committed judges the answer to a COMMIT that was sent. Only the tag COMMIT proves a commit, and
// only an ERROR from the server, or the tag ROLLBACK, disproves it. The client's error about a
// broken connection proves nothing: the request or the reply may be lost.
func (t *Tx) committed(ctx context.Context, tag pgconn.CommandTag, err error) error {
	switch {
	case err == nil:
		switch tag.String() {
		case "COMMIT":
			return nil
		case "ROLLBACK":
			return pkg.NotCommitted(t.aborted())
		}
		return pkg.CommitUnknown(fmt.Errorf("COMMIT was answered by %q", tag))
	case tables.Expired(err): // the server said so before it read COMMIT
		t.drop(ctx)
		return pkg.NotCommitted(fmt.Errorf("%w: %w", stores.ErrTxExpired, err))
	case tables.Refused(err):
		t.gate.Fail(err)
		return pkg.NotCommitted(errors.Join(err, t.end(ctx)))
	}
	t.drop(ctx)
	return pkg.CommitUnknown(err)
}

// Rollback implements stores.Attempt.
func (t *Tx) Rollback(ctx context.Context) (left Left, err error) {
	err = t.outcome.Rollback(pkg, func() (err error) {
		left, err = t.rollback(ctx, t.gate.Close(), t.suspect.Load())
		return err
	})
	return left, err
}

func (t *Tx) rollback(ctx context.Context, idle, suspect bool) (Left, error) {
	var doubt error
	if suspect && (!idle || !t.stillOurs(ctx)) {
		doubt = sqltx.ErrEscaped
	}
	if !idle {
		return InUse, errors.Join(stores.ErrTxBusy, doubt)
	}
	if pg := t.conn.PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' && pg.IsBusy() {
		return InUse, doubt
	}
	err := t.end(ctx)
	t.retire(ctx)
	return Usable, errors.Join(doubt, err)
}

// Refuse rolls back, and dooms the attempt, for a handler that called Commit or Rollback and so
// lost the connection.
func (t *Tx) Refuse(ctx context.Context) Left {
	t.Doom(stores.ErrTxManaged)
	left, _ := t.Commit(ctx)
	return left
}

// stillOurs reports whether the running transaction wrote the claim's row. It cannot ask a failed
// transaction or a lost connection.
func (t *Tx) stillOurs(ctx context.Context) bool {
	pg := t.conn.PgConn()
	if pg.IsClosed() || pg.IsBusy() || pg.TxStatus() != 'T' {
		return false
	}
	_, err := t.conn.Exec(ctx, t.tables.Owned(), t.consumer, t.id)
	return err == nil
}

// end rolls back an open transaction.
func (t *Tx) end(ctx context.Context) error {
	pg := t.conn.PgConn()
	if pg.IsClosed() || pg.TxStatus() == 'I' {
		return nil
	}
	_, err := t.conn.Exec(ctx, "rollback")
	if err != nil {
		t.drop(ctx)
	}
	return err
}

// drop closes a connection in an unknown state.
func (t *Tx) drop(ctx context.Context) { _ = t.conn.Close(ctx) }
