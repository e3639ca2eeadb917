package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxRow is SQLite's limit for a row, less what the small columns may take.
const maxRow = 1_000_000_000 - 64<<10

// Quarantine implements stores.Quarantine.
func (s *Store) Quarantine(ctx context.Context, q stores.Quarantined) error {
	consumer, err := s.consumer(q.Consumer)
	if err != nil {
		return err
	}
	size := len(q.ID) + len(q.UUID) + len(q.Payload)
	for name, value := range q.Metadata {
		size += len(name) + len(value)
	}
	if size > s.maxRow {
		return s.tooLarge(size)
	}
	metadata, err := sqlstore.EncodeMetadata(q.Metadata)
	if err != nil {
		return err
	}
	if size = len(q.ID) + len(q.UUID) + len(q.Payload) + len(metadata); size > s.maxRow {
		return s.tooLarge(size)
	}
	hash := q.IdentityHash()
	fingerprint := q.Fingerprint.Bytes()
	if fingerprint == nil {
		fingerprint = []byte{} // two NULLs would never be equal
	}
	err = s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
		seen, err := tx.ExecContext(ctx, s.sql.seen, consumer, hash[:], fingerprint, string(q.Reason))
		if err != nil {
			return err
		}
		if n, err := seen.RowsAffected(); err != nil || n > 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, s.sql.quarantine, consumer, hash[:], fingerprint, string(q.Reason),
			sqlstore.Text(q.Detail, stores.MaxDetailBytes), sqlstore.NonEmpty(q.ID), q.Existing.Bytes(),
			sqlstore.Text(q.Topic, maxTopicBytes), sqlstore.Text(q.Coordinates, maxTopicBytes),
			sqlstore.NonEmpty([]byte(q.UUID)), metadata, q.Payload, sqlstore.Text(q.Codec, maxTopicBytes), q.OneWay)
		return err
	})
	switch {
	case err == nil:
		return nil
	case isCode(err, sqlite3.SQLITE_TOOBIG):
		return fmt.Errorf("sqlite: %w: %w", stores.ErrTooLarge, err)
	}
	return fmt.Errorf("sqlite: quarantine: %w", s.explain(ctx, err))
}

func (s *Store) tooLarge(size int) error {
	return fmt.Errorf("sqlite: %w: it has %d bytes, a row takes %d", stores.ErrTooLarge, size, s.maxRow)
}
