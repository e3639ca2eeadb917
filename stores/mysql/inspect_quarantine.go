package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Quarantined implements stores.Inspector.
func (s *Store) Quarantined(ctx context.Context, q stores.QuarantineQuery) (found []stores.QuarantineRow, err error) {
	err = s.inspect(ctx, q.Limit, func() error {
		c, err := s.consumersNamed(ctx, q.Service, q.Handler)
		if err != nil {
			return err
		}
		if q.Status == "" {
			q.Status = stores.QuarantineHeld
		}
		w := &sqlstore.Condition{}
		w.And("q.status = ?", []byte(q.Status))
		if q.Service != "" || q.Handler != "" {
			w.And("q.consumer IN " + in(c.IDs()))
		}
		if q.Reason != "" {
			w.And("q.reason = ?", []byte(q.Reason))
		}
		if q.Before > 0 {
			w.And("q.id < ?", q.Before)
		}
		query := s.text(`SELECT ` + sqlstore.QuarantineColumns + ` FROM {schema.}{prefix}quarantine q WHERE ` + w.String() + ` ORDER BY q.id DESC LIMIT ?`)
		found, err = sqlstore.List(ctx, s.db, query, append(w.Args, q.Limit), func(scan sqlstore.Scan) (stores.QuarantineRow, error) {
			return sqlstore.ScanQuarantined(scan, c)
		})
		return err
	})
	return found, err
}

// QuarantinedRow implements stores.Inspector.
func (s *Store) QuarantinedRow(ctx context.Context, rowID int64) (r stores.QuarantineRow, err error) {
	err = s.inspect(ctx, 1, func() error {
		c, err := s.consumersNamed(ctx, "", "")
		if err != nil {
			return err
		}
		var metadata, payload []byte
		row := s.db.QueryRowContext(ctx, s.text(`SELECT `+sqlstore.QuarantineColumns+`, q.metadata, q.payload FROM {schema.}{prefix}quarantine q WHERE q.id = ?`), rowID)
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
	if _, _, ok := sqlstore.Ruling(d.Verb); !ok {
		return errVerb(d.Verb, "quarantined messages", stores.VerbRelease, stores.VerbReject, stores.VerbReopen)
	}
	return s.inspect(ctx, 1, func() error {
		return s.transact(ctx, func(tx *sql.Tx) error { return s.decide(ctx, tx, d) })
	})
}

func (s *Store) decide(ctx context.Context, tx *sql.Tx, d stores.Decision) error {
	from, to, _ := sqlstore.Ruling(d.Verb)
	var (
		was            stores.QuarantineStatus
		oneWay         bool
		reason, detail string
	)
	err := tx.QueryRowContext(ctx, s.sql.held, d.RowID).Scan(&was, &oneWay, &reason, &detail)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return stores.ErrNotFound
	case err != nil:
		return err
	case was != from:
		return stores.ErrChanged
	}
	if d.Verb == stores.VerbRelease {
		if oneWay {
			return stores.ErrNotKept
		}
		if detail != "" {
			reason += ": " + detail
		}
		if err := s.letOut(ctx, tx, d.RowID, reason); err != nil {
			return err
		}
	}
	if err := one(tx.ExecContext(ctx, s.sql.decision, []byte(to), []byte(to), d.RowID, []byte(from))); err != nil {
		return err
	}
	return one(tx.ExecContext(ctx, s.text("INSERT INTO {schema.}{prefix}audit (at, verb, actor, reason, consumer, number, message_id, `before`, `after`) "+
		"SELECT {now}, ?, ?, ?, consumer, id, message_id, ?, ? FROM {schema.}{prefix}quarantine WHERE id = ?"),
		[]byte(d.Verb), text(d.Actor, stores.MaxDetailBytes), text(d.Reason, stores.MaxDetailBytes), []byte(from), []byte(to), d.RowID))
}

// letOut gives the message a row under an id of its own, parked and due.
func (s *Store) letOut(ctx context.Context, tx *sql.Tx, rowID int64, reason string) error {
	id := stores.ReleasedID(rowID)
	_, err := tx.ExecContext(ctx, s.sql.markReleased, id, rowID)
	if isDuplicate(err) {
		return stores.ErrChanged
	}
	if err != nil {
		return err
	}
	return one(tx.ExecContext(ctx, s.sql.keepReleased,
		id, []byte(classReleased), []byte(stores.CauseOf(classReleased, reason)), text(reason, stores.MaxErrorBytes), rowID))
}
