package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Quarantined implements stores.Inspector.
func (s *Store) Quarantined(ctx context.Context, q stores.QuarantineQuery) (found []stores.QuarantineRow, err error) {
	err = s.inspect(ctx, "quarantined", func() error {
		if q.Limit <= 0 {
			return errLimit
		}
		c, err := s.consumersNamed(ctx, q.Service, q.Handler)
		if err != nil {
			return err
		}
		if q.Status == "" {
			q.Status = stores.QuarantineHeld
		}
		w := &sqlstore.Condition{}
		w.And("q.status = ?", string(q.Status))
		if q.Service != "" || q.Handler != "" {
			w.And("+q.consumer IN (SELECT value FROM json_each(?))", array(c.IDs()))
		}
		if q.Reason != "" {
			w.And("q.reason = ?", string(q.Reason))
		}
		if q.Before > 0 {
			w.And("q.id < ?", q.Before)
		}
		query := s.text(`SELECT ` + sqlstore.QuarantineColumns + ` FROM {schema.}{prefix}quarantine q WHERE ` + w.String() + ` ORDER BY q.id DESC LIMIT ?`)
		found, err = sqlstore.List(ctx, s.reader, query, append(w.Args, q.Limit), func(scan sqlstore.Scan) (stores.QuarantineRow, error) {
			return sqlstore.ScanQuarantined(scan, c)
		})
		return err
	})
	return found, err
}

// QuarantinedRow implements stores.Inspector.
func (s *Store) QuarantinedRow(ctx context.Context, rowID int64) (r stores.QuarantineRow, err error) {
	err = s.inspect(ctx, "quarantined row", func() error {
		c, err := s.consumersNamed(ctx, "", "")
		if err != nil {
			return err
		}
		var metadata, payload []byte
		row := s.reader.QueryRowContext(ctx, s.text(`SELECT `+sqlstore.QuarantineColumns+`, q.metadata, q.payload FROM {schema.}{prefix}quarantine q WHERE q.id = ?`), rowID)
		r, err = sqlstore.ScanQuarantined(row.Scan, c, &metadata, &payload)
		if errors.Is(err, sql.ErrNoRows) {
			err = stores.ErrNotFound
		}
		if err != nil {
			r = stores.QuarantineRow{}
			return err
		}
		r.Payload = payload
		r.Metadata, r.Unreadable = sqlstore.DecodeMetadata(metadata)
		return nil
	})
	return r, err
}

// classReleased is of messages that an operator has let out of quarantine. It is no
// failure of theirs.
const classReleased stores.Class = "released"

// Decide implements stores.Inspector.
func (s *Store) Decide(ctx context.Context, d stores.Decision) error {
	return s.inspect(ctx, string(d.Verb), func() error {
		from, to, ok := sqlstore.Ruling(d.Verb)
		if !ok {
			return fmt.Errorf("%q is no verb for quarantined messages: use %s, %s or %s", d.Verb, stores.VerbRelease, stores.VerbReject, stores.VerbReopen)
		}
		return s.writer.write(ctx, s.writer.patience(), func(tx *sql.Tx) error {
			if d.Verb == stores.VerbRelease {
				if err := s.letOut(ctx, tx, d.RowID); err != nil {
					return err
				}
			}
			return s.settle(ctx, tx, d, from, to)
		})
	})
}

// letOut gives the message a row under an id of its own, parked and due.
func (s *Store) letOut(ctx context.Context, tx *sql.Tx, rowID int64) error {
	var (
		status         stores.QuarantineStatus
		oneWay         bool
		reason, detail string
	)
	err := tx.QueryRowContext(ctx, s.text(`SELECT status, one_way, reason, detail FROM {schema.}{prefix}quarantine WHERE id = ?`), rowID).
		Scan(&status, &oneWay, &reason, &detail)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return stores.ErrNotFound
	case err != nil:
		return err
	case status != stores.QuarantineHeld:
		return stores.ErrChanged
	case oneWay:
		return stores.ErrNotKept
	}
	if detail != "" {
		reason += ": " + detail
	}
	id := stores.ReleasedID(rowID)
	if err := one(tx.ExecContext(ctx, s.text(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint)
		SELECT consumer, ?, 3, nullif(fingerprint, x'') FROM {schema.}{prefix}quarantine WHERE id = ? ON CONFLICT DO NOTHING`), id, rowID)); err != nil {
		return err
	}
	return one(tx.ExecContext(ctx, s.text(`INSERT INTO {schema.}{prefix}failure (consumer, message_id, status, placement, content, attempts, uncounted,
			due_at, class, cause, error, topic, coordinates, codec, uuid, metadata, payload)
		SELECT consumer, ?, 3, 1, 1, 0, 0, {now}, ?, ?, ?, topic, coordinates, codec, uuid, metadata, payload
		FROM {schema.}{prefix}quarantine WHERE id = ?`),
		id, string(classReleased), stores.CauseOf(classReleased, reason), sqlstore.Text(reason, stores.MaxErrorBytes), rowID))
}

// settle is the guarded change of the quarantine's row, with its audit.
func (s *Store) settle(ctx context.Context, tx *sql.Tx, d stores.Decision, from, to stores.QuarantineStatus) error {
	err := one(tx.ExecContext(ctx, s.text(`UPDATE {schema.}{prefix}quarantine SET status = ?1,
			decided_at = CASE WHEN ?1 = 'held' THEN NULL ELSE {now} END WHERE id = ?2 AND status = ?3`),
		string(to), d.RowID, string(from)))
	if errors.Is(err, stores.ErrChanged) {
		var exists bool
		if err := tx.QueryRowContext(ctx, s.text(`SELECT EXISTS (SELECT 1 FROM {schema.}{prefix}quarantine WHERE id = ?)`), d.RowID).Scan(&exists); err != nil {
			return err
		}
		if !exists {
			return stores.ErrNotFound
		}
	}
	if err != nil {
		return err
	}
	return one(tx.ExecContext(ctx, s.text(`INSERT INTO {schema.}{prefix}audit (verb, actor, reason, consumer, number, message_id, before, after)
		SELECT ?, ?, ?, consumer, id, message_id, ?, ? FROM {schema.}{prefix}quarantine WHERE id = ?`),
		string(d.Verb), sqlstore.Text(d.Actor, stores.MaxDetailBytes), sqlstore.Text(d.Reason, stores.MaxDetailBytes), string(from), string(to), d.RowID))
}
