package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Resolve implements stores.Resolver. The locking read waits for a transaction that
// holds the key, and sees what has become of it.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	consumer, err := s.tables.Known(k)
	if err != nil {
		return false, err
	}
	var status stores.Status
	err = s.on(ctx, func(conn *sql.Conn) error {
		return conn.QueryRowContext(ctx, s.sql.resolve, consumer, k.ID).Scan(&status)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, s.unresolved(err)
	}
	return status == stores.StatusCompleted, nil
}

// closeLost completes a key whose claim was rolled back, so that it does not run again,
// and reports whether it did: another delivery may have the key by now.
func (s *Store) closeLost(ctx context.Context, c *claimed) (bool, error) {
	if c.took != 0 {
		return s.closeTaken(ctx, *c)
	}
	_, err := s.db.ExecContext(ctx, s.sql.closeLost, c.consumer, c.id, c.token, c.fingerprint, c.trace)
	if isDuplicate(err) {
		return false, nil
	}
	if err != nil {
		return false, s.unresolved(err)
	}
	return true, nil
}

// closeTaken is closeLost for a message that had failed before, and has its row again.
func (s *Store) closeTaken(ctx context.Context, c claimed) (closed bool, err error) {
	c.orderKey = nil // it has run, whatever is before it
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

// unresolved: whoever asks must ask again, whatever the reason.
func (s *Store) unresolved(err error) error {
	if err = s.tables.Explain(context.Background(), err); errors.Is(err, stores.ErrNotMigrated) || errors.Is(err, stores.ErrUnavailable) {
		return err
	}
	return errors.Join(stores.ErrUnavailable, err)
}

// closeEscaped reports whether the claim was committed before its attempt had ended, and
// completes it if so: it must not be taken for one that is in flight, nor run again. With
// a locking read it waits for a transaction that has the key.
func (s *Store) closeEscaped(ctx context.Context, c *claimed, locking string) (escaped bool, err error) {
	var status stores.Status
	err = s.db.QueryRowContext(ctx, s.sql.escaped+locking, c.consumer, c.id, c.token).Scan(&status)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return false, nil
	case err != nil:
		return false, s.unresolved(err)
	case status != stores.StatusProcessing:
		return status == stores.StatusCompleted, nil
	}
	if _, err := s.db.ExecContext(ctx, s.sql.closeEscaped, c.consumer, c.id, c.token); err != nil {
		return false, s.unresolved(err)
	}
	return true, nil
}
