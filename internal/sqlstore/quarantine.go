package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

const insertQuarantined = `INSERT INTO {schema.}{prefix}quarantine (consumer, identity_hash, fingerprint, reason, detail, message_id, existing,
	topic, coordinates, uuid, metadata, facts, payload, codec, one_way, first_at, last_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, {now})
{again} seen = {prefix}quarantine.seen + 1, last_at = {now}`

// Quarantine implements stores.Quarantine, in one commit.
func (s Store) Quarantine(ctx context.Context, q stores.Quarantined) error {
	consumer, err := s.t.Consumer(q.Consumer)
	if err != nil {
		return err
	}
	encoded, err := s.t.encode(q.Metadata, q.Facts, len(q.ID), len(q.UUID), len(q.Payload))
	if err != nil {
		return err
	}
	hash := q.IdentityHash()
	fingerprint := q.Fingerprint.Bytes()
	if fingerprint == nil {
		fingerprint = []byte{} // NULLs are never equal
	}
	_, err = s.t.exec(ctx, Statement{Text: s.t.fixed(insertQuarantined), Args: []any{
		consumer, hash[:], fingerprint, Text(string(q.Reason), maxWordBytes), Text(q.Detail, stores.MaxDetailBytes), NonEmpty(q.ID), q.Existing.Bytes(),
		Text(q.Topic, maxPlaceBytes), Text(q.Coordinates, maxPlaceBytes), []byte(q.UUID), encoded.Metadata, encoded.Facts, q.Payload,
		Text(q.Codec, maxWordBytes), q.OneWay,
	}})
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}
