package tables

import (
	"context"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// maxChange is how many rows one batch of Change looks at: it takes a lock for each,
// of which the server has room for some thousands.
const maxChange = 1000

// Change implements stores.Inspector, in one statement: what it has not got the locks
// of at once it leaves alone, so it never waits for a delivery, and a delivery never
// waits for it.
func (s Store) Change(ctx context.Context, c stores.Change) (stores.Changed, error) {
	q, err := s.t.newQuery(ctx, c.Limit)
	if err != nil {
		return stores.Changed{}, err
	}
	var set, mark string
	switch c.Verb {
	case stores.VerbRetry:
		set, mark = retrySet, "3"
		q.and("f.status = ANY ('{3,4,5}')")
		// What was retried, and nothing has happened to since, is as it should be.
		q.and("NOT (f.status = 3 AND f.redrives > 0 AND f.attempts = 0 AND f.uncounted = 0 AND f.due_at <= now() AND NOT f.presumed AND NOT f.reserved)")
	case stores.VerbDiscard:
		set, mark = "status = 5, due_at = NULL, suspect = f.suspect OR f.reserved, reserved = false", "5"
		q.and("f.status = ANY ('{3,4}')")
	case stores.VerbRelease, stores.VerbReject:
		fallthrough
	default:
		return stores.Changed{}, fmt.Errorf("postgres: %q is no change of failed messages: use %q or %q", c.Verb, stores.VerbRetry, stores.VerbDiscard)
	}
	q.failures(c.Filter)
	limit := min(c.Limit, maxChange)
	sql := q.text(`WITH scanned AS MATERIALIZED (
	SELECT f.number FROM {schema.}{prefix}failure f
	WHERE {where} AND f.number > ` + q.bind(c.After) + ` AND f.number <= ` + q.bind(upTo(c.UpTo)) + `
	ORDER BY f.number LIMIT ` + q.bind(limit) + `
), free AS MATERIALIZED (
	SELECT f.number, f.status FROM {schema.}{prefix}failure f
	WHERE f.number = ANY (ARRAY(SELECT number FROM scanned)) AND {where}
	AND NOT (f.reserved AND f.due_at > clock_timestamp()) AND pg_try_advisory_xact_lock(` + fmt.Sprintf(LockKeyText, q.bind(s.t.lockPrefix)) + `)
	FOR UPDATE SKIP LOCKED
), changed AS (
	UPDATE {schema.}{prefix}failure f SET ` + revised + ", " + set + `
	FROM free WHERE f.number = free.number
	RETURNING f.number, f.consumer, f.message_id, f.placement, f.status, f.order_key, free.status AS before
), gone AS (
	SELECT consumer, order_key, number FROM changed WHERE status <> 3
), ` + nextInOrder + `, marked AS (
	UPDATE {schema.}{prefix}inbox i SET status = ` + mark + ` FROM changed
	WHERE i.consumer = changed.consumer AND i.message_id = changed.message_id AND i.status <> ` + mark + `
), audited AS (
	INSERT INTO {schema.}{prefix}audit (verb, actor, reason, consumer, number, message_id, before, after)
	SELECT ` + q.bind(string(c.Verb)) + `::text, ` + q.bind(sqlstore.Text(c.Actor, stores.MaxDetailBytes)) + `::text, ` + q.bind(sqlstore.Text(c.Reason, stores.MaxDetailBytes)) + `::text,
		consumer, number, message_id, ` + statusName("before") + `, ` + statusName(mark) + ` FROM changed
)
SELECT (SELECT count(*) FROM scanned), (SELECT coalesce(max(number), 0) FROM scanned),
	count(*), count(*) FILTER (WHERE placement = 2) FROM changed`)
	var (
		scanned, redelivered int
		done                 stores.Changed
	)
	found := false
	_, err = s.t.db.Send(ctx, Statement{Text: sql, Args: q.args, Read: first(&found, &scanned, &done.Next, &done.Changed, &redelivered)})
	if err != nil {
		return stores.Changed{}, s.t.unavailable(err)
	}
	done.Busy, done.Done = scanned-done.Changed, scanned < limit
	if scanned == 0 {
		done.Next = c.After
	}
	if c.Verb == stores.VerbRetry {
		done.Redelivered = redelivered
		s.t.wake(ctx, done.Changed-redelivered)
	}
	return done, nil
}

// retrySet makes a message due with a fresh budget. What is not kept waits for the
// broker to deliver it again, and nothing waits for it: it may never come.
const retrySet = `status = 3, placement = CASE WHEN f.content = 1 THEN 1 ELSE 2 END, attempts = 0, uncounted = 0,
order_key = CASE WHEN f.content = 1 THEN f.order_key END,
presumed = false, suspect = f.suspect OR f.reserved, reserved = false, redrives = f.redrives + 1, budget_at = now(), due_at = now()`

func upTo(number int64) int64 {
	if number == 0 {
		return 1<<63 - 1
	}
	return number
}

// LockKeyText is Tables.LockKey for a failure called f, with the prefix as %s.
const LockKeyText = `('x' || encode(substr(sha256(%s::bytea || int4send(f.consumer) || f.message_id), 1, 8), 'hex'))::bit(64)::bigint`

// statusName is SQL for the word of a status.
func statusName(number string) string {
	sql := "CASE"
	for _, s := range []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded} {
		sql += fmt.Sprintf(" WHEN %s = %d THEN '%s'", number, s, s)
	}
	return sql + " END"
}

// Audit implements stores.Inspector.
func (s Store) Audit(ctx context.Context, before int64, limit int) ([]stores.AuditEntry, error) {
	q, err := s.t.newQuery(ctx, limit)
	if err != nil {
		return nil, err
	}
	if before != 0 {
		q.and("a.id < ?", before)
	}
	return collect(ctx, s.t, q, `SELECT a.id, (extract(epoch from a.at) * 1000000)::bigint, a.verb, a.actor, a.reason, coalesce(c.service, ''), coalesce(c.handler, ''),
a.message_id, a.number, a.before, a.after
FROM {schema.}{prefix}audit a LEFT JOIN {schema.}{prefix}consumer c ON c.id = a.consumer
WHERE {where} ORDER BY a.id DESC LIMIT `+q.bind(limit), scanAudit)
}
