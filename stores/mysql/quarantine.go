package mysql

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Quarantine implements stores.Quarantine.
func (s *Store) Quarantine(ctx context.Context, q stores.Quarantined) error {
	consumer, err := s.consumer(q.Consumer)
	if err != nil {
		return err
	}
	metadata, err := sqlstore.EncodeMetadata(q.Metadata)
	if err != nil {
		return fmt.Errorf("mysql: %w", err)
	}
	if err := s.fits(len(q.ID), len(q.UUID), len(q.Payload), len(metadata)); err != nil {
		return err
	}
	hash := q.IdentityHash()
	fingerprint := q.Fingerprint.Bytes()
	if fingerprint == nil {
		fingerprint = []byte{} // two NULLs would never be equal
	}
	reason := text(string(q.Reason), maxNameBytes)
	err = s.transact(ctx, func(tx *sql.Tx) error {
		seen, err := tx.ExecContext(ctx, s.sql.seen, consumer, hash[:], fingerprint, reason)
		if err != nil {
			return err
		}
		if n, err := seen.RowsAffected(); err != nil || n > 0 {
			return err
		}
		_, err = execLarge(ctx, tx, len(q.Payload)+len(metadata), s.sql.quarantine, consumer, hash[:], fingerprint, reason,
			text(q.Detail, stores.MaxDetailBytes), sqlstore.NonEmpty(q.ID), q.Existing.Bytes(),
			text(q.Topic, maxTextBytes), text(q.Coordinates, maxTextBytes),
			[]byte(q.UUID), metadata, q.Payload, text(q.Codec, maxNameBytes), q.OneWay)
		return err
	})
	if err != nil {
		return s.unavailable(err)
	}
	return nil
}
