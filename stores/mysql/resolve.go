package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Resolve implements stores.Resolver. Its locking read waits for a transaction that holds the key,
// and sees its outcome.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	consumer, err := s.tables.Known(k)
	if err != nil {
		return false, err
	}
	var status stores.Status
	err = s.settled(ctx, s.sql.resolve, &status, consumer, k.ID)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, s.unresolved(err)
	}
	return status == stores.StatusCompleted, nil
}

// settled reads a value of a row once no transaction has it locked. On TiDB a statement outside a
// transaction takes no lock, and waits for none.
func (s *Store) settled(ctx context.Context, text string, into any, args ...any) error {
	if s.texts().tidb {
		return s.undone(ctx, func(tx *sql.Tx) error { return tx.QueryRowContext(ctx, text+" FOR UPDATE", args...).Scan(into) })
	}
	return s.on(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, text+" LOCK IN SHARE MODE", args...).Scan(into)
	})
}

// alone sends a statement as a transaction of its own. On TiDB a statement outside a transaction
// takes no lock: if another transaction has the row, it fails after some 80 seconds.
func (s *Store) alone(ctx context.Context, text string, args ...any) error {
	if s.texts().tidb {
		return database{s}.Write(ctx, func(tx sqlstore.Sender) error {
			_, err := tx.Send(ctx, sqlstore.Statement{Text: text, Args: args})
			return err
		})
	}
	_, err := s.db.ExecContext(ctx, text, args...)
	return err
}

// closeLost completes a key whose claim was rolled back, so that it does not run again. It reports
// whether it did: another delivery may have the key by now.
func (s *Store) closeLost(ctx context.Context, c *claimed) (bool, error) {
	if c.took != 0 {
		return s.closeTaken(ctx, *c)
	}
	err := s.alone(ctx, s.sql.closeLost, c.consumer, c.id, c.token, c.fingerprint, c.trace)
	if isDuplicate(err) {
		return false, nil
	}
	if err != nil {
		return false, s.unresolved(err)
	}
	return true, nil
}

// closeTaken is closeLost for a message that had failed before, and so has its row again.
func (s *Store) closeTaken(ctx context.Context, c claimed) (closed bool, err error) {
	c.orderKey = nil // the message has run, whatever precedes it
	number, revision := sqlstore.ParseVersion(c.took)
	err = database{s}.Write(ctx, func(tx sqlstore.Sender) error {
		taken, _, err := s.tryTake(ctx, tx, &c, number, revision)
		if err != nil || !taken {
			return err
		}
		changed, err := exec(ctx, tx, string(s.texts().finish(nil, &c)))
		closed = changed == 1
		return err
	})
	if err != nil {
		return false, s.unresolved(err)
	}
	return closed, nil
}

// unresolved turns any error into one after which the caller asks again.
func (s *Store) unresolved(err error) error {
	if err = s.tables.Explain(context.Background(), err); errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrUnavailable) {
		return err
	}
	return errors.Join(stores.ErrUnavailable, err)
}

// closeEscaped reports whether the claim was committed before its attempt ended, and then completes
// it: it must neither stay in flight nor run again. waits: wait for a transaction that holds the
// key.
func (s *Store) closeEscaped(ctx context.Context, c *claimed, waits bool) (escaped bool, err error) {
	var status stores.Status
	if waits {
		err = s.settled(ctx, s.sql.escaped, &status, c.consumer, c.id, c.token)
	} else {
		err = s.db.QueryRowContext(ctx, s.sql.escaped, c.consumer, c.id, c.token).Scan(&status)
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, s.unresolved(err)
	case status != stores.StatusProcessing:
		return status == stores.StatusCompleted, nil
	}
	if err := s.alone(ctx, s.sql.closeEscaped, c.consumer, c.id, c.token); err != nil {
		return false, s.unresolved(err)
	}
	return true, nil
}
