package tables

import (
	"context"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxKept is the largest payload that is kept: the server takes messages of up to
// 1 GiB, and needs several times a value's size to handle it.
const maxKept = 256 << 20

// maxTextBytes bounds names of places, which come from outside.
const maxTextBytes = 1 << 10

// maxNameBytes bounds short names, of codecs, classes and causes.
const maxNameBytes = 200

// Quarantine implements stores.Quarantine, in one trip and one commit.
func (s Store) Quarantine(ctx context.Context, q stores.Quarantined) error {
	if s.t.closed.Load() {
		return stores.ErrClosed
	}
	consumer, err := s.t.consumerID(q.Consumer)
	if err != nil {
		return err
	}
	metadata, err := sqlstore.EncodeMetadata(q.Metadata)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	if n := len(q.Payload) + len(metadata); n > maxKept {
		return fmt.Errorf("postgres: %w: %d bytes, at most %d can be kept", stores.ErrTooLarge, n, maxKept)
	}
	hash := q.IdentityHash()
	fingerprint := q.Fingerprint.Bytes()
	if fingerprint == nil {
		fingerprint = []byte{} // NULLs would not be compared
	}
	_, err = s.t.db.Send(ctx, Statement{Text: s.t.sql.quarantine, Args: []any{
		consumer,
		string(q.Reason), sqlstore.Text(q.Detail, stores.MaxDetailBytes), hash[:], q.ID, fingerprint, q.Existing.Bytes(),
		sqlstore.Text(q.Topic, maxTextBytes), sqlstore.Text(q.Coordinates, maxTextBytes), []byte(q.UUID), metadata, q.Payload,
		sqlstore.Text(q.Codec, maxNameBytes), q.OneWay,
	}})
	if err != nil {
		return s.t.unavailable(err)
	}
	return nil
}
