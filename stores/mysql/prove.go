package mysql

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// proveTimeout bounds what is only a precaution.
const proveTimeout = 2 * time.Second

// prove has two connections show that a row that is locked is passed by and refused, and
// that a key is taken which another transaction is inserting: servers that only speak the
// protocol, and tables that are not InnoDB's, accept the statements, and two handlers would
// run. Nothing is left of it. Where it cannot be tried, as without the right to write, there
// is no error. tables begins the names of the tables.
func (s *Store) prove(ctx context.Context, tables string) error {
	if s.config.AnyServer || s.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	wrong := ""
	_ = s.undone(ctx, func(first *sql.Tx) error {
		if _, err := first.ExecContext(ctx, "INSERT INTO "+tables+"inbox (consumer, message_id, status) VALUES (0, ?, 1)", id); err != nil {
			return err
		}
		slot := int(id[0]) // of the locks of order keys
		if !lockable(ctx, first, tables, slot, "NOWAIT") {
			return nil
		}
		return s.undone(ctx, func(second *sql.Tx) error {
			if lockable(ctx, second, tables, slot, "SKIP LOCKED") || lockable(ctx, second, tables, slot, "NOWAIT") {
				wrong = "it gives one lock to two connections"
				return nil
			}
			var status int
			err := second.QueryRowContext(ctx, "SELECT status FROM "+tables+"inbox WHERE consumer = 0 AND message_id = ? FOR UPDATE NOWAIT", id).Scan(&status)
			if err == nil || errors.Is(err, sql.ErrNoRows) {
				wrong = "it does not see that a key is taken which another transaction is inserting"
			}
			return nil
		})
	})
	if wrong != "" {
		_, _ = s.db.ExecContext(ctx, "DELETE FROM "+tables+"inbox WHERE consumer = 0 AND message_id = ?", id) // of a table that rolls nothing back
		return fmt.Errorf("%w: %s, so that two handlers would run: use MySQL 8.0 or later, or MariaDB 10.6 or later, and InnoDB for millpond's tables", sqlstore.ErrUnusable, wrong)
	}
	return nil
}

// undone calls f in a transaction that is rolled back.
func (s *Store) undone(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	return errors.Join(f(tx), tx.Rollback())
}

// lockable reports whether a connection is given the lock of a row.
func lockable(ctx context.Context, tx *sql.Tx, tables string, slot int, how string) bool {
	var got int
	return tx.QueryRowContext(ctx, fmt.Sprintf("SELECT slot FROM %soutbox_lock WHERE slot = %d FOR UPDATE %s", tables, slot, how)).Scan(&got) == nil
}
