package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

const (
	selectQuarantined = `SELECT q.id, q.consumer, q.reason, q.detail, q.message_id, q.fingerprint, q.existing, q.topic, q.coordinates, q.uuid,
	q.codec, q.one_way, q.status, q.seen, {us}q.first_at{/us}, {us}q.last_at{/us}, {us}q.decided_at{/us}, coalesce(length(q.payload), 0)`

	fromQuarantine = ` FROM {schema.}{prefix}quarantine q WHERE `
)

// scanQuarantined reads the columns of selectQuarantined, and those after them into more.
func scanQuarantined(rows Rows, c Consumers, more ...any) (stores.QuarantineRow, error) {
	var (
		r                           stores.QuarantineRow
		consumer                    int64
		fingerprint, existing, uuid []byte
		firstAt, lastAt, decidedAt  *int64
	)
	into := []any{
		&r.RowID, &consumer, &r.Reason, &r.Detail, &r.ID, &fingerprint, &existing, &r.Topic, &r.Coordinates, &uuid,
		&r.Codec, &r.OneWay, &r.Status, &r.Seen, &firstAt, &lastAt, &decidedAt, &r.PayloadBytes,
	}
	if err := rows.Scan(append(into, more...)...); err != nil {
		return r, err
	}
	r.Consumer = c[consumer]
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // a later version's cannot be shown
	r.Existing, _ = stores.ParseFingerprint(existing)
	r.UUID = string(uuid)
	r.FirstAt, r.LastAt, r.DecidedAt = Instant(firstAt), Instant(lastAt), Instant(decidedAt)
	return r, nil
}

// Quarantined implements stores.Inspector.
func (s Store) Quarantined(ctx context.Context, q stores.QuarantineQuery) (found []stores.QuarantineRow, err error) {
	err = s.t.inspect(ctx, q.Limit, q.Service, q.Handler, func(c Consumers) error {
		if q.Status == "" {
			q.Status = stores.QuarantineHeld
		}
		w := &Condition{}
		w.And("q.status = ?", string(q.Status))
		if q.Service != "" || q.Handler != "" {
			w.in(s.t.Dialect(), "{any order}q.consumer", c.IDs())
		}
		if q.Reason != "" {
			w.And("q.reason = ?", string(q.Reason))
		}
		if q.Topic != "" {
			w.And("{bytes}q.topic{/bytes} = ?", q.Topic)
		}
		if q.ID != nil {
			w.And("q.message_id = ?", q.ID)
		}
		if !q.Since.IsZero() {
			w.And("q.last_at >= ?", s.t.Dialect().Time(q.Since))
		}
		if !q.Until.IsZero() {
			w.And("q.last_at < ?", s.t.Dialect().Time(q.Until))
		}
		if q.Before > 0 {
			w.And("q.id < ?", q.Before)
		}
		text := selectQuarantined + fromQuarantine + w.String() + ` ORDER BY q.id DESC LIMIT ?`
		found, err = list(ctx, s.t.db, Statement{Text: s.t.sql(text), Args: append(w.Args, q.Limit)}, func(rows Rows) (stores.QuarantineRow, error) {
			return scanQuarantined(rows, c)
		})
		return err
	})
	return found, err
}

// QuarantinedRow implements stores.Inspector.
func (s Store) QuarantinedRow(ctx context.Context, rowID int64) (r stores.QuarantineRow, err error) {
	err = s.t.inspect(ctx, 1, "", "", func(c Consumers) error {
		var encoded Encoded
		var payload []byte
		text := selectQuarantined + `, q.metadata, q.facts, q.payload` + fromQuarantine + `q.id = ?`
		found, err := list(ctx, s.t.db, Statement{Text: s.t.fixed(text), Args: []any{rowID}}, func(rows Rows) (stores.QuarantineRow, error) {
			return scanQuarantined(rows, c, &encoded.Metadata, &encoded.Facts, &payload)
		})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return stores.ErrNotFound
		}
		r = found[0]
		r.Payload = payload
		r.Metadata, r.Facts, r.Unreadable = encoded.decode()
		return nil
	})
	return r, err
}
