package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	resolveKey = `SELECT i.status FROM {schema.}{prefix}inbox i JOIN {schema.}{prefix}consumer c ON c.id = i.consumer
WHERE c.service = ? AND c.handler = ? AND i.message_id = ?`
	fence   = `INSERT INTO {schema.}{prefix}schema (version, compatible, name) VALUES (0, 0, 'fence')`
	unfence = `DELETE FROM {schema.}{prefix}schema WHERE version = 0`
)

// Resolve implements stores.Resolver. It holds the write lock, so it sees all commits. A key that
// is not completed stays so: after a failed write the log may end in a complete transaction that
// only a recovery would see, and the commit made here takes its place.
func (s *Store) Resolve(ctx context.Context, k stores.Key) (bool, error) {
	if err := k.Validate(); err != nil {
		return false, fmt.Errorf("sqlite: %w", err)
	}
	var status stores.Status
	err := s.writer.write(ctx, time.Time{}, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, s.dialect.Fixed(resolveKey), k.Consumer.Service, k.Consumer.Handler, k.ID).Scan(&status)
		if status == stores.StatusCompleted || err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		for _, query := range []string{fence, unfence} { // changes a page, but not its content
			if _, err := tx.ExecContext(ctx, s.dialect.Fixed(query)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("sqlite: resolve: %w", s.explain(ctx, err))
	}
	return status == stores.StatusCompleted, nil
}
