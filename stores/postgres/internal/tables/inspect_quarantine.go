package tables

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const quarantineColumns = `q.id, c.service, c.handler, q.message_id, q.reason, q.detail, q.fingerprint, q.existing, q.topic, q.coordinates, q.uuid,
q.codec, q.one_way, q.seen, (extract(epoch from q.first_at) * 1000000)::bigint, (extract(epoch from q.last_at) * 1000000)::bigint,
q.status, (extract(epoch from q.decided_at) * 1000000)::bigint, coalesce(octet_length(q.payload), 0)`

// Quarantined implements stores.Inspector.
func (s Store) Quarantined(ctx context.Context, qq stores.QuarantineQuery) ([]stores.QuarantineRow, error) {
	q, err := s.t.newQuery(ctx, qq.Limit)
	if err != nil {
		return nil, err
	}
	q.consumers("q", qq.Service, qq.Handler)
	if qq.Status == "" {
		qq.Status = stores.QuarantineHeld
	}
	q.and("q.status = ?", string(qq.Status))
	if qq.Reason != "" {
		q.and("q.reason = ?", string(qq.Reason))
	}
	if qq.Before != 0 {
		q.and("q.id < ?", qq.Before)
	}
	return collect(ctx, s.t, q, `SELECT `+quarantineColumns+`
FROM {schema.}{prefix}quarantine q JOIN {schema.}{prefix}consumer c ON c.id = q.consumer
WHERE {where} ORDER BY q.id DESC LIMIT `+q.bind(qq.Limit),
		func(row Rows) (stores.QuarantineRow, error) { return scanQuarantined(row, false) })
}

// QuarantinedRow implements stores.Inspector.
func (s Store) QuarantinedRow(ctx context.Context, rowID int64) (stores.QuarantineRow, error) {
	q, err := s.t.newQuery(ctx, 1)
	if err != nil {
		return stores.QuarantineRow{}, err
	}
	q.and("q.id = ?", rowID)
	return one(ctx, s.t, q, `SELECT `+quarantineColumns+`, q.metadata, q.payload
FROM {schema.}{prefix}quarantine q JOIN {schema.}{prefix}consumer c ON c.id = q.consumer WHERE {where}`,
		func(row Rows) (stores.QuarantineRow, error) { return scanQuarantined(row, true) })
}

func scanQuarantined(row Rows, whole bool) (stores.QuarantineRow, error) {
	var (
		r                                     stores.QuarantineRow
		fingerprint, existing, uuid, metadata []byte
	)
	dest := []any{
		&r.RowID, &r.Consumer.Service, &r.Consumer.Handler, &r.ID, &r.Reason, &r.Detail, &fingerprint, &existing, &r.Topic, &r.Coordinates, &uuid,
		&r.Codec, &r.OneWay, &r.Seen,
		instant{&r.FirstAt},
		instant{&r.LastAt},
		&r.Status,
		instant{&r.DecidedAt},
		&r.PayloadBytes,
	}
	if whole {
		dest = append(dest, &metadata, &r.Payload)
	}
	if err := row.Scan(dest...); err != nil {
		return r, err
	}
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
	r.Existing, _ = stores.ParseFingerprint(existing)
	r.UUID = string(uuid)
	if whole {
		r.Metadata, r.Unreadable = sqlstore.DecodeMetadata(metadata)
	}
	return r, nil
}

// Decide implements stores.Inspector. What is decided about, and the cause of its
// error, are read before; the decision is guarded by the status alone, which is the
// only thing about a row in quarantine that changes what may be done with it.
func (s Store) Decide(ctx context.Context, d stores.Decision) error {
	if err := s.t.ready(ctx); err != nil {
		return err
	}
	from, to, ok := sqlstore.Ruling(d.Verb)
	if !ok {
		return fmt.Errorf("postgres: %q is no decision about the quarantine: use %q, %q or %q", d.Verb, stores.VerbRelease, stores.VerbReject, stores.VerbReopen)
	}
	sql := ruleText
	if d.Verb == stores.VerbRelease {
		sql = releaseHeldText
	}
	row, err := s.QuarantinedRow(ctx, d.RowID)
	switch {
	case err != nil:
		return err
	case row.Status != from:
		return fmt.Errorf("postgres: %w: it is %s", stores.ErrChanged, row.Status)
	case d.Verb == stores.VerbRelease && row.OneWay:
		return fmt.Errorf("postgres: %w: its codec is %q", stores.ErrNotKept, row.Codec)
	}
	reason := sqlstore.Text(string(row.Reason)+": "+row.Detail, stores.MaxErrorBytes)
	affected, err := s.t.db.Send(ctx, statement(expand(s.t.qualified, sql), pgx.NamedArgs{
		"row": d.RowID, "verb": string(d.Verb), "from": string(from), "to": string(to), "actor": sqlstore.Text(d.Actor, stores.MaxDetailBytes), "reason": sqlstore.Text(d.Reason, stores.MaxDetailBytes),
		"id": stores.ReleasedID(d.RowID), "class": string(classReleased), "error": reason, "cause": stores.CauseOf(classReleased, reason),
	}, nil))
	if sqlState(err) == uniqueViolation {
		return fmt.Errorf("postgres: %w: there is a message %s already", stores.ErrChanged, stores.ReleasedID(d.RowID))
	}
	switch {
	case err != nil:
		return s.t.unavailable(err)
	case affected == 0:
		return fmt.Errorf("postgres: %w", stores.ErrChanged)
	}
	if d.Verb == stores.VerbRelease {
		s.t.wake(ctx, 1)
	}
	return nil
}

// classReleased says that no attempt has failed yet.
const classReleased stores.Class = "released"

const (
	audited = `INSERT INTO {schema.}{prefix}audit (verb, actor, reason, consumer, number, message_id, before, after)
SELECT @verb::text, @actor::text, @reason::text, consumer, id, message_id, @from::text, status FROM decided`

	ruleText = `WITH decided AS (
	UPDATE {schema.}{prefix}quarantine SET status = @to, decided_at = CASE WHEN @to::text = 'held' THEN NULL ELSE clock_timestamp() END
	WHERE id = @row AND status = @from RETURNING *
) ` + audited

	releaseHeldText = `WITH decided AS (
	UPDATE {schema.}{prefix}quarantine SET status = 'released', decided_at = clock_timestamp()
	WHERE id = @row AND status = 'held' AND NOT one_way RETURNING *
), marked AS (
	INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint)
	SELECT consumer, @id::bytea, 3, CASE WHEN fingerprint <> ''::bytea THEN fingerprint END FROM decided
), kept AS (
	INSERT INTO {schema.}{prefix}failure (consumer, message_id, status, placement, content, attempts, uncounted, due_at,
		class, cause, error, topic, coordinates, codec, uuid, metadata, payload)
	SELECT consumer, @id::bytea, 3, 1, 1, 0, 0, now(), @class::text, @cause::text, @error::text,
		topic, coordinates, codec, uuid, metadata, payload FROM decided
) ` + audited
)

func scanAudit(row Rows) (e stores.AuditEntry, err error) {
	return e, row.Scan(&e.ID, instant{&e.At}, &e.Verb, &e.Actor, &e.Reason, &e.Consumer.Service, &e.Consumer.Handler, &e.MessageID, &e.Number, &e.Before, &e.After)
}
