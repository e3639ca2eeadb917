package mysql

import "github.com/millpond-go/millpond/internal/sqlstore"

// statements are the texts of claims for one set of table names. All other texts are where they are
// sent.
type statements struct {
	// With verbs of package fmt, for values in forms that need no escaping.
	take, behind, mark, remove string
	next, free, wake           string

	inHands                                   string
	resolve, escaped, closeEscaped, closeLost string
}

// stateColumns are the columns that sqlstore.State reads. They are null without a failure.
const stateColumns = `f.number, f.revision, f.status, f.placement, f.content, f.class, f.attempts, f.uncounted, f.presumed,
	{now} - f.budget_at, CAST(f.due_at AS SIGNED) - {now}`

func newStatements(d *sqlstore.Dialect) *statements {
	return &statements{
		take: d.SQL(`SELECT f.order_key FROM {both}
			WHERE f.consumer = %d AND f.message_id = %s AND f.number = %d AND f.revision = %d AND f.status = 3{free}`),
		behind: d.SQL(`SELECT 1 FROM {schema.}{prefix}failure e
			WHERE e.consumer = %d AND e.order_key = %s AND e.status = 3 AND e.number < %d AND {blocks} LIMIT 1`),
		mark: d.SQL(`UPDATE {schema.}{prefix}inbox SET status = 1, completed_at = {now}, token = %d, traceparent = %s WHERE status = 3 AND `),
		remove: d.SQL(`DELETE f, o FROM {schema.}{prefix}failure f
			LEFT JOIN {schema.}{prefix}once o ON o.consumer = f.consumer AND o.message_id = f.message_id WHERE f.number = %d`),
		next: d.SQL(`SELECT number FROM {schema.}{prefix}failure
			WHERE consumer = %d AND order_key = %s AND status = 3 AND number > %d ORDER BY number LIMIT 1`),
		free: d.SQL(`SELECT number FROM {schema.}{prefix}failure
			WHERE number = %d AND status = 3 AND placement = 1 AND reserved = 0 AND presumed = 0 AND due_at > {now}{free}`),
		wake: d.SQL(`UPDATE {schema.}{prefix}failure SET {changed}, due_at = {now} WHERE number = %d`),

		inHands: d.SQL(`SELECT 1 FROM {schema.}{prefix}inbox WHERE `),

		resolve: d.SQL(`SELECT status FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ?`),
		escaped: d.SQL(`SELECT status FROM {schema.}{prefix}inbox WHERE consumer = ? AND message_id = ? AND token = ?`),
		closeEscaped: d.SQL(`UPDATE {schema.}{prefix}inbox SET status = 2
			WHERE consumer = ? AND message_id = ? AND token = ? AND status = 1`),
		closeLost: d.SQL(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, completed_at, token, fingerprint, traceparent)
			VALUES (?, ?, 2, {now}, ?, ?, ?)`),
	}
}
