package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/millpond-go/millpond/internal/pause"
	"github.com/millpond-go/millpond/stores"
)

// Rows are a query's rows, as all drivers have them.
type Rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
}

// Statement is SQL with its arguments.
type Statement struct {
	Text     string
	Args     []any
	Read     func(Rows) error // reads the rows; nil: no rows expected
	Inserted *int64           // gets the number of the inserted row, if the driver reports it separately
}

// Sender sends one statement at a time, and returns how many rows it affected. Errors are the
// driver's.
type Sender interface {
	Send(ctx context.Context, s Statement) (affected int64, err error)
}

// Database is a database with its driver. Arguments are strings, booleans, integers, bytes, and the
// Dialect's forms of times and lists. Results are integers, booleans, strings and bytes.
type Database interface {
	Sender // for reads of committed data

	// Write runs f in a short transaction at READ COMMITTED, and commits it if f returns nil. It
	// may run f again after a deadlock or a lock timeout.
	Write(ctx context.Context, f func(Sender) error) error

	// SchemaState reads the newest version of the tables. Version 0: there are no tables.
	SchemaState(ctx context.Context) (SchemaState, error)
	// Learn asks the server once for its properties, when the tables exist. again: the server may
	// be another one, so it asks again for properties that may differ.
	Learn(ctx context.Context, again bool) (*Dialect, error)
	// LookUp reads a key's row if it is durably committed.
	LookUp(ctx context.Context, consumer int64, id []byte) (Row, error)

	// Complete returns a number up to which all outputs are committed, as far as the database can
	// tell: it may miss transactions that are drawing a number right now.
	Complete(ctx context.Context) (through int64, err error)

	// Explain maps a driver's error at the beginning of an operation to the contract's errors.
	Explain(ctx context.Context, err error) error
	// Taken reports whether an insert failed because the row exists or another transaction is
	// inserting it.
	Taken(err error) bool
	// Fits returns ErrTooLarge for a row that cannot be kept.
	Fits(bytes int) error
}

// Executor is implemented by databases that can send a single statement without a transaction
// around it.
type Executor interface {
	Exec(ctx context.Context, s Statement) (affected int64, err error)
}

// exec sends one statement in its own transaction.
func (t *Tables) exec(ctx context.Context, s Statement) (affected int64, err error) {
	if db, ok := t.db.(Executor); ok {
		return db.Exec(ctx, s)
	}
	err = t.db.Write(ctx, func(tx Sender) error {
		affected, err = tx.Send(ctx, s)
		return err
	})
	return affected, err
}

// SenderFunc is a function that is a Sender.
type SenderFunc func(ctx context.Context, s Statement) (affected int64, err error)

// Send implements Sender.
func (f SenderFunc) Send(ctx context.Context, s Statement) (int64, error) { return f(ctx, s) }

// Conn is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Conn interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Send sends a statement through database/sql.
func Send(ctx context.Context, to Conn, s Statement) (affected int64, err error) {
	if s.Read != nil {
		rows, err := to.QueryContext(ctx, s.Text, s.Args...)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		if err := s.Read(rows); err != nil {
			return 0, err
		}
		return 0, errors.Join(rows.Close(), rows.Err())
	}
	result, err := to.ExecContext(ctx, s.Text, s.Args...)
	if err != nil {
		return 0, err
	}
	if s.Inserted != nil {
		if *s.Inserted, err = result.LastInsertId(); err != nil {
			return 0, err
		}
	}
	return result.RowsAffected()
}

// list returns the results of scan for all rows.
func list[T any](ctx context.Context, on Sender, s Statement, scan func(Rows) (T, error)) ([]T, error) {
	all := []T{}
	s.Read = func(rows Rows) error {
		for rows.Next() {
			one, err := scan(rows)
			if err != nil {
				return err
			}
			all = append(all, one)
		}
		return rows.Err()
	}
	if _, err := on.Send(ctx, s); err != nil {
		return nil, err
	}
	return all, nil
}

// listFree is list for a statement that locks the rows of some keys, and leaves out those that
// another transaction has locked. Where the server only refuses locked rows, it asks for fewer and
// fewer.
func listFree[K, T any](ctx context.Context, t *Tables, on Sender, keys []K, statement func([]K) Statement, scan func(Rows) (T, error)) error {
	_, err := list(ctx, on, statement(keys), scan)
	switch {
	case !t.refused(err):
		return err
	case len(keys) == 1:
		return nil
	}
	half := len(keys) / 2
	if err := listFree(ctx, t, on, keys[:half], statement, scan); err != nil {
		return err
	}
	return listFree(ctx, t, on, keys[half:], statement, scan)
}

func (t *Tables) refused(err error) bool {
	refused := t.Dialect().Refused
	return err != nil && refused != nil && refused(err)
}

// First reads at most one row.
func First(ctx context.Context, on Sender, s Statement, into ...any) (found bool, err error) {
	s.Read = ReadFirst(&found, into...)
	_, err = on.Send(ctx, s)
	return found, err
}

// ReadFirst reads at most one row; found says whether there was one.
func ReadFirst(found *bool, into ...any) func(Rows) error {
	return func(rows Rows) error {
		if *found = rows.Next(); *found {
			if err := rows.Scan(into...); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

// one returns ErrChanged if a guarded statement changed no row.
func one(affected int64, err error) error {
	if err == nil && affected != 1 {
		return stores.ErrChanged
	}
	return err
}

// Instant returns the time of a column in microseconds; NULL is the zero time.
func Instant(micros *int64) time.Time {
	if micros == nil {
		return time.Time{}
	}
	return time.UnixMicro(*micros)
}

// maxTries is how often a short transaction is tried while it meets deadlocks or lock timeouts.
const maxTries = 5

// Retry runs a short transaction, and repeats it after a deadlock or a lock timeout.
func Retry(ctx context.Context, inTheWay func(error) bool, transact func() error) error {
	for try := 1; ; try++ {
		err := transact()
		if err == nil || try == maxTries || !inTheWay(err) {
			return err
		}
		if err := Pause(ctx); err != nil {
			return err
		}
	}
}

// Again tries a second and a third time, soon after, to lock a row that was locked or missing:
// another transaction may only have read it.
func Again(ctx context.Context, lock func() (bool, error)) (bool, error) {
	const tries = 3
	for try := 1; ; try++ {
		locked, err := lock()
		if locked || err != nil || try == tries {
			return locked, err
		}
		if err := Pause(ctx); err != nil {
			return false, err
		}
	}
}

// Pause waits a moment, so that another transaction can end.
func Pause(ctx context.Context) error {
	if !pause.Sleep(ctx, pause.Jitter(5*time.Millisecond)) {
		return context.Cause(ctx)
	}
	return nil
}
