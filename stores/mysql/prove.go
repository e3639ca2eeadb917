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

// proveTimeout bounds the check, which is only a precaution.
const proveTimeout = 2 * time.Second

// prove checks, on two connections, that a locked row is skipped and refused, and that a key counts
// as taken while another transaction inserts it. Servers that only speak the protocol, and tables
// that are not InnoDB's, accept the statements but let two handlers run. It leaves nothing behind.
// If the check is impossible, for example without the right to write, it returns nil.
func (s *Store) prove(ctx context.Context, names sqlstore.Names, sv server) error {
	if s.db.Stats().MaxOpenConnections == 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	wrong := ""
	err := s.undone(ctx, func(first *sql.Tx) error {
		if _, err := first.ExecContext(ctx, names.Expand("INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status) VALUES (0, ?, 1)"), id); err != nil {
			return err
		}
		slot := int(id[0]) // a lock for order keys
		if err := lock(ctx, first, names, slot, " FOR UPDATE NOWAIT"); err != nil {
			return err
		}
		err := s.undone(ctx, func(second *sql.Tx) error {
			for _, how := range sv.refusals() {
				switch err := lock(ctx, second, names, slot, how); {
				case lacks(err):
					return err
				case err == nil:
					wrong = "it gives one lock to two connections, so two handlers would run"
					return nil
				}
			}
			var status int
			err := second.QueryRowContext(ctx, names.Expand("SELECT status FROM {schema.}{prefix}inbox WHERE consumer = 0 AND message_id = ?"+sv.nowait()), id).Scan(&status)
			switch {
			case lacks(err):
				return err
			case err == nil, errors.Is(err, sql.ErrNoRows):
				wrong = "it does not see that a key is taken while another transaction inserts it, so two handlers would run"
			}
			return nil
		})
		var status int
		if own := first.QueryRowContext(ctx, names.Expand("SELECT status FROM {schema.}{prefix}inbox WHERE consumer = 0 AND message_id = ?"), id).Scan(&status); own != nil {
			wrong = "" // this connection and its locks were lost
		}
		return err
	})
	if wrong != "" {
		_, _ = s.db.ExecContext(ctx, names.Expand("DELETE FROM {schema.}{prefix}inbox WHERE consumer = 0 AND message_id = ?"), id) // for a table without transactions
	}
	if lacks(err) {
		wrong = fmt.Sprintf("it lacks what claims are made of (%v)", err)
	}
	if wrong != "" {
		return fmt.Errorf("%w: %s: use MySQL 8.0 or later, or MariaDB 10.6 or later, and InnoDB for millpond's tables", sqlstore.ErrUnusable, wrong)
	}
	return nil
}

// lacks reports whether a server does not know a clause.
func lacks(err error) bool {
	switch number(err) {
	case syntaxError, notSupportedYet:
		return true
	}
	return false
}

// undone calls f in a transaction that it rolls back.
func (s *Store) undone(ctx context.Context, f func(*sql.Tx) error) error {
	return s.on(ctx, func(conn *sql.Conn) error {
		tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		return errors.Join(f(tx), tx.Rollback())
	})
}

// lock locks a row with one of the statements that do not wait.
func lock(ctx context.Context, tx *sql.Tx, names sqlstore.Names, slot int, how string) error {
	var got int
	return tx.QueryRowContext(ctx, names.Expand("SELECT slot FROM {schema.}{prefix}outbox_lock WHERE slot = ?"+how), slot).Scan(&got)
}
