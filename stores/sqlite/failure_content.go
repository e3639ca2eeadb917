package sqlite

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// KeepContent implements stores.Failures. It queues for the writer.
func (s *Store) KeepContent(ctx context.Context, k stores.Key, version int64, c stores.Content) error {
	consumer, err := s.consumerOf(k)
	if err != nil {
		return err
	}
	size := len(k.ID) + len(c.UUID) + len(c.Payload)
	for name, value := range c.Metadata {
		size += len(name) + len(value)
	}
	if size > s.maxRow {
		return s.tooLarge(size)
	}
	metadata, err := sqlstore.EncodeMetadata(c.Metadata)
	if err != nil {
		return fmt.Errorf("sqlite: %w", err)
	}
	if size = len(k.ID) + len(c.UUID) + len(c.Payload) + len(metadata); size > s.maxRow {
		return s.tooLarge(size)
	}
	number, revision := sqlstore.ParseVersion(version)
	err = s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
		return one(tx.ExecContext(ctx, s.sql.failures.keepContent, c.State, sqlstore.Text(c.Codec, maxWordBytes),
			sqlstore.NonEmpty([]byte(c.UUID)), metadata, c.Payload, consumer, k.ID, number, revision))
	})
	if err != nil {
		return fmt.Errorf("sqlite: keep content: %w", s.explain(ctx, err))
	}
	return nil
}
