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
// is no error.
func (s *Store) prove(ctx context.Context, names sqlstore.Names) error {
	if s.config.AnyServer || s.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	wrong := ""
	_ = s.undone(ctx, func(first *sql.Tx) error {
		if _, err := first.ExecContext(ctx, names.Expand("INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status) VALUES (0, ?, 1)"), id); err != nil {
			return err
		}
		slot := int(id[0]) // of the locks of order keys
		if !lockable(ctx, first, names, slot, "NOWAIT") {
			return nil
		}
		return s.undone(ctx, func(second *sql.Tx) error {
			if lockable(ctx, second, names, slot, "SKIP LOCKED") || lockable(ctx, second, names, slot, "NOWAIT") {
				wrong = "it gives one lock to two connections"
				return nil
			}
			var status int
			err := second.QueryRowContext(ctx, names.Expand("SELECT status FROM {schema.}{prefix}inbox WHERE consumer = 0 AND message_id = ? FOR UPDATE NOWAIT"), id).Scan(&status)
			if err == nil || errors.Is(err, sql.ErrNoRows) {
				wrong = "it does not see that a key is taken which another transaction is inserting"
			}
			return nil
		})
	})
	if wrong != "" {
		_, _ = s.db.ExecContext(ctx, names.Expand("DELETE FROM {schema.}{prefix}inbox WHERE consumer = 0 AND message_id = ?"), id) // of a table that rolls nothing back
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
func lockable(ctx context.Context, tx *sql.Tx, names sqlstore.Names, slot int, how string) bool {
	var got int
	return tx.QueryRowContext(ctx, names.Expand("SELECT slot FROM {schema.}{prefix}outbox_lock WHERE slot = ? FOR UPDATE "+how), slot).Scan(&got) == nil
}
