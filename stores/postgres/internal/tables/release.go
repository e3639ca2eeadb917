package tables

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Release implements stores.Retries in one round trip and one commit.
func (s Store) Release(ctx context.Context, reserved []stores.Retry) error {
	return s.changeReserved(ctx, reserved, s.t.sql.release, s.t.channel)
}

// Renew implements stores.Retries in one round trip and one commit.
func (s Store) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	return s.changeReserved(ctx, reserved, s.t.sql.renew, d)
}

func (s Store) changeReserved(ctx context.Context, reserved []stores.Retry, text string, arg any) error {
	return s.t.shared.Reserved(ctx, reserved, func(all sqlstore.Reservations) error {
		_, err := database{s.t}.Exec(ctx, Statement{Text: text, Args: []any{all.Numbers, all.Revisions, all.Consumers, all.IDs, arg}})
		return err
	})
}

const reservedText = `WITH free AS MATERIALIZED (
	SELECT f.number FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::bigint[]), unnest($4::pg_catalog.bytea[])) AS p (one, revision, consumer, message_id)
	CROSS JOIN LATERAL (
		SELECT number FROM {schema.}{prefix}failure
		WHERE number = p.one AND revision = p.revision AND consumer = p.consumer AND message_id = p.message_id AND status = 3 AND reserved
		FOR UPDATE SKIP LOCKED
	) f WHERE ` + fewNumbers + `
)`

const renewText = reservedText + `
UPDATE {schema.}{prefix}failure f SET due_at = now() + $5::interval
FROM free WHERE f.number = free.number`

const releaseText = reservedText + `, released AS (
	UPDATE {schema.}{prefix}failure f SET ` + revised + `, reserved = false, due_at = now()
	FROM free WHERE f.number = free.number
)
SELECT pg_notify($5, '')::text`

// Backlog implements stores.Retries in one round trip.
func (s Store) Backlog(ctx context.Context, limit int) (backlog []stores.Backlog, err error) {
	err = s.t.shared.Inspect(ctx, limit, func() error {
		_, err := s.t.db.Send(ctx, Statement{Text: s.t.sql.backlog, Args: []any{limit}, Read: func(rows Rows) error {
			for rows.Next() {
				var b stores.Backlog
				var oldest int64
				if err := rows.Scan(&b.Consumer.Service, &b.Consumer.Handler, &b.Due, &oldest); err != nil {
					return err
				}
				b.Oldest = time.Duration(oldest) * time.Microsecond
				backlog = append(backlog, b)
			}
			return rows.Err()
		}})
		return err
	})
	return backlog, err
}

const backlogText = `SELECT c.service, c.handler, b.n, b.oldest
FROM {schema.}{prefix}consumer c CROSS JOIN LATERAL (
	SELECT count(*) AS n, (extract(epoch from now() - min(due_at)) * 1000000)::bigint AS oldest FROM (
		SELECT due_at FROM {schema.}{prefix}failure
		WHERE consumer = c.id AND status = 3 AND placement = 1 AND due_at <= now()
		ORDER BY due_at LIMIT $1
	) due
) b WHERE b.n > 0 ORDER BY c.service, c.handler`
