package tables

import (
	"cmp"
	"context"
	"math"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const (
	// maxDue bounds the rows that one call of Due reads.
	maxDue = 500
	// maxLooks is how often Due reads again while all rows found so far must wait for others.
	maxLooks = 8
)

// Due implements stores.Retries in one round trip and one commit, plus one round trip each time it
// lets another call for the same consumer go first.
func (s Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	consumer, err := s.t.shared.Dueable(q)
	if err != nil {
		return nil, err
	}
	limit := min(q.Limit, maxDue)
	for looks, turns := 0, 0; looks < maxLooks; {
		found, err := s.t.reserve(ctx, consumer, q, limit, turns == maxTurns)
		switch {
		case err != nil:
			return nil, err
		case !found.turn:
			turns++
			if err := sqlstore.Pause(ctx); err != nil {
				return nil, s.t.shared.Explain(ctx, err)
			}
			continue
		case len(found.due) > 0 || found.seen < limit:
			return found.due, nil
		}
		looks++
	}
	return nil, nil
}

// maxTurns is how often Due lets another call for the same consumer go first. Then it no longer
// waits: that call may belong to a paused process.
const maxTurns = 30

// reserved is the result of one read.
type reserved struct {
	turn bool // no other call for the consumer was reading
	seen int  // rows read, including those that must wait for others
	due  []stores.Retry
}

// reserve reserves the runnable rows among those that it reads. Two calls at once would lock rows
// that the other has just reserved, and a claim or release meanwhile skips locked rows. So calls
// take turns, with a lock in a first statement; the second statement sees what the previous call
// did.
func (t *Tables) reserve(ctx context.Context, consumer int64, q stores.DueQuery, limit int, anyway bool) (found reserved, err error) {
	var looked bool
	err = t.db.Batch(ctx,
		Statement{Text: turn, Args: []any{t.LockKey(consumer, nil), anyway}, Read: first(&looked, &found.turn)},
		Statement{Text: t.sql.due, Args: []any{consumer, limit, q.Reserve, cmp.Or(q.MaxBytes, math.MaxInt)}, Read: func(rows Rows) (err error) {
			found.due, found.seen, err = scanDue(rows, q.Consumer)
			return err
		}})
	if err != nil {
		return reserved{}, t.shared.Explain(ctx, err)
	}
	return found, nil
}

var turn = qualify("SELECT set_config('millpond.turn', ($2 OR pg_try_advisory_xact_lock($1))::text, true)::boolean")

func scanDue(rows Rows, consumer stores.Consumer) (due []stores.Retry, seen int, err error) {
	for rows.Next() {
		seen++
		var runnable, suspect bool
		r, err := sqlstore.ScanRetry(rows, consumer, &runnable, &suspect)
		if err != nil {
			return nil, 0, err
		}
		if r.Suspect = suspect; runnable {
			due = append(due, r)
		}
	}
	return due, seen, rows.Err()
}

const (
	// A row behind an earlier one of its order key is postponed, so that not every call reads it
	// again. Its predecessor wakes it when it ends, unless the row is locked at that moment. While
	// this transaction locks the predecessor, it cannot end, so the row is postponed for long. The
	// lock is the weakest one, which permits waking. A predecessor that runs, or may begin to run
	// now, cannot be locked: then the postponement is short.
	//
	// The inner limit tells the planner that there are few rows, and the lateral joins that the
	// inbox is read by its key: both tables may be large, and the statistics old.
	//
	// The inner limit tells the planner that there are few rows, and the lateral joins that the
	// inbox is read by its key: both tables may be large, and the statistics old.
	dueText = `WITH due AS MATERIALIZED (
	SELECT number, order_key, due_at, suspect OR reserved AS suspect,
		coalesce(octet_length(payload), 0) + coalesce(octet_length(metadata), 0) + coalesce(octet_length(facts), 0) AS size
	FROM {schema.}{prefix}failure
	WHERE consumer = $1 AND status = 3 AND placement = 1 AND due_at <= now()
	AND current_setting('millpond.turn')::boolean
	ORDER BY due_at LIMIT $2
	FOR UPDATE SKIP LOCKED
), behind AS MATERIALIZED (
	SELECT due.number, head.number AS head, head.due_at, before_.number AS before_ FROM due
	JOIN LATERAL (
		SELECT earlier.number, earlier.due_at FROM {schema.}{prefix}failure earlier
		WHERE earlier.consumer = $1 AND earlier.status = 3 AND earlier.order_key = due.order_key AND earlier.number < due.number
		AND ` + blocks + `
		ORDER BY earlier.number LIMIT 1
	) head ON true
	JOIN LATERAL (
		SELECT earlier.number FROM {schema.}{prefix}failure earlier
		WHERE earlier.consumer = $1 AND earlier.status = 3 AND earlier.order_key = due.order_key AND earlier.number < due.number
		ORDER BY earlier.number DESC LIMIT 1
	) before_ ON true
	LIMIT 500
), held AS MATERIALIZED (
	SELECT f.number FROM behind CROSS JOIN LATERAL (
		SELECT number FROM {schema.}{prefix}failure
		WHERE number = before_ AND status = 3 AND due_at > now() AND NOT reserved AND NOT presumed
		FOR KEY SHARE SKIP LOCKED
	) f
), judged AS (
	SELECT due.number, due.due_at AS since, due.suspect AS had, CASE
		WHEN behind.number IS NULL THEN now() + $3::interval
		WHEN before_ <> ALL (ARRAY(SELECT number FROM held UNION ALL SELECT number FROM due)) THEN now() + interval '1 second'
		WHEN before_ = head THEN greatest(least(behind.due_at, now() + interval '1 minute'), now() + interval '1 second')
		ELSE greatest(behind.due_at, now() + interval '1 minute')
	END AS until, behind.number IS NULL AS runnable, due.size,
	sum(due.size) OVER (PARTITION BY behind.number IS NULL ORDER BY due.due_at, due.number) AS total
	FROM due LEFT JOIN behind ON behind.number = due.number
	LIMIT 500
), f AS (
	UPDATE {schema.}{prefix}failure f SET ` + revised + `, reserved = runnable, suspect = had, holder = NULL, due_at = until
	FROM judged WHERE f.number = judged.number AND (NOT runnable OR total <= $4::bigint OR total = size)
	RETURNING f.*, runnable, since
)
SELECT runnable, suspect, ` + stateColumns + `, f.message_id, i.fingerprint, i.traceparent, topic, coordinates, order_key, codec, uuid,
	CASE WHEN runnable THEN metadata END, CASE WHEN runnable THEN facts END, CASE WHEN runnable THEN payload END, error, cause
FROM f LEFT JOIN LATERAL (
	SELECT fingerprint, traceparent FROM {schema.}{prefix}inbox WHERE consumer = $1 AND message_id = f.message_id OFFSET 0
) i ON true
ORDER BY since`
)
