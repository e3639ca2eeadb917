package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// maxTries is how often a short transaction is begun again that met another one.
const maxTries = 5

// transact runs f in a short transaction of the store's, and again where the server has
// rolled it back for others.
func (s *Store) transact(ctx context.Context, f func(tx *sql.Tx) error) error {
	for try := 1; ; try++ {
		err := s.transactOnce(ctx, f)
		if err == nil || try == maxTries || !isContended(err) && number(err) != duplicateEntry {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

func (s *Store) transactOnce(ctx context.Context, f func(tx *sql.Tx) error) error {
	conn, err := s.connection(ctx, s.db)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// pause lets a transaction of somebody else end.
func pause(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond + rand.N(5*time.Millisecond)) //nolint:gosec // spreads load, keeps no secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// again asks a second and a third time, soon, for a row that was locked or gone: it may
// have been in the hands of somebody who only looked at it.
func again(ctx context.Context, lock func() (bool, error)) (bool, error) {
	const tries = 3
	for try := 1; ; try++ {
		locked, err := lock()
		if locked || err != nil || try == tries {
			return locked, err
		}
		if err := pause(ctx); err != nil {
			return false, err
		}
	}
}

// execLarge sends a statement with values of that size. Large ones are not made text of.
func execLarge(ctx context.Context, tx *sql.Tx, size int, query string, args ...any) (sql.Result, error) {
	const large = 256 << 10
	if size < large {
		return tx.ExecContext(ctx, query, args...)
	}
	prepared, err := tx.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer prepared.Close()
	return prepared.ExecContext(ctx, args...)
}

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// sender sends statements that have their values in them.
type sender interface {
	exec(ctx context.Context, text string) (affected int64, err error)
	row(ctx context.Context, text string, into ...any) (found bool, err error)
}

// short is a short transaction as a sender.
type short struct{ tx *sql.Tx }

func (s short) exec(ctx context.Context, text string) (int64, error) {
	result, err := s.tx.ExecContext(ctx, text)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (s short) row(ctx context.Context, text string, into ...any) (bool, error) {
	found := false
	err := sqlstore.Each(ctx, s.tx, text, nil, func(scan sqlstore.Scan) error {
		found = true
		return scan(into...)
	})
	return found, err
}

// advance makes the next message of an order key due, unless somebody has it in hand: one
// that is locked just now comes when its own time is up.
func advance(ctx context.Context, on sender, texts *statements, consumer int64, orderKey []byte, after int64) error {
	var number, found int64
	ok, err := on.row(ctx, fmt.Sprintf(texts.next, consumer, appendBytes(nil, orderKey), after), &number)
	if err != nil || !ok {
		return err
	}
	ok, err = on.row(ctx, expand(texts.names, fmt.Sprintf(
		"SELECT number FROM {schema.}{prefix}failure WHERE number = %d AND status = 3 AND placement = 1 AND reserved = 0 AND presumed = 0 AND due_at > {now} FOR UPDATE SKIP LOCKED",
		number)), &found)
	if err != nil || !ok {
		return err
	}
	_, err = on.exec(ctx, fmt.Sprintf(texts.wake, number))
	return err
}

// in is a list of numbers, for IN.
func in[N ~int64 | ~uint8](values []N) string {
	if len(values) == 0 {
		return "(NULL)"
	}
	b := []byte{'('}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, int64(v))
	}
	return string(append(b, ')'))
}

// text makes s fit for a text column, as bytes: no character set of a connection changes
// them.
func text(s string, limit int) []byte { return []byte(sqlstore.Text(s, limit)) }
