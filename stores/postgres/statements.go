package postgres

import "github.com/millpond-go/millpond/internal/sqlstore"

// statements are the SQL texts for one set of table names.
type statements struct {
	claim, claimBounded, look, owned, register, addTopic, consumer, quarantine string
}

func newStatements(n sqlstore.Names) statements {
	return statements{
		// The row is born completed: nobody sees it before the commit, so the
		// transaction is its status, and a message costs one row version. The lock
		// is asked for before the insert is tried, so the insert never waits.
		claim: n.Expand(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint, traceparent, completed_at)
SELECT $1, $2, 2, $3, $4, now() WHERE pg_try_advisory_xact_lock($5)
ON CONFLICT DO NOTHING RETURNING completed_at`),
		// The same, where the connection's own timeouts do not keep the bound.
		claimBounded: n.Expand(`INSERT INTO {schema.}{prefix}inbox (consumer, message_id, status, fingerprint, traceparent, completed_at)
SELECT $1, $2, 2, $3, $4, now() WHERE pg_try_advisory_xact_lock($5)
AND set_config('idle_in_transaction_session_timeout', $6, true) IS NOT NULL
AND set_config('statement_timeout', $7, true) IS NOT NULL
ON CONFLICT DO NOTHING RETURNING completed_at`),
		look: n.Expand(`SELECT status, fingerprint, traceparent, coalesce(completed_at, 'epoch') FROM {schema.}{prefix}inbox
WHERE consumer = $1 AND message_id = $2`),
		// Raises division_by_zero, which keeps a COMMIT behind it from running,
		// unless the row was written by the transaction that runs this.
		owned: n.Expand(`SELECT 1 / count(*) FROM {schema.}{prefix}inbox
WHERE consumer = $1 AND message_id = $2 AND xmin = pg_current_xact_id_if_assigned()::xid`),
		register: n.Expand(`INSERT INTO {schema.}{prefix}consumer (service, handler, topics)
VALUES ($1, $2, CASE WHEN $3 = '' THEN '{}' ELSE ARRAY[$3] END)
ON CONFLICT (service, handler) DO NOTHING`),
		addTopic: n.Expand(`UPDATE {schema.}{prefix}consumer SET topics = topics || $3::text
WHERE service = $1 AND handler = $2 AND NOT topics @> ARRAY[$3::text] AND ($4 OR topics = '{}')`),
		consumer: n.Expand(`SELECT id, topics FROM {schema.}{prefix}consumer WHERE service = $1 AND handler = $2`),
		quarantine: n.Expand(`INSERT INTO {schema.}{prefix}quarantine AS q
(consumer, reason, detail, identity_hash, message_id, fingerprint, existing, topic, coordinates, uuid, metadata, payload)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (consumer, identity_hash, fingerprint, reason)
DO UPDATE SET seen = q.seen + 1, last_at = clock_timestamp()`),
	}
}
