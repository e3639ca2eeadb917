package tables

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const (
	// maxDue is how many rows one call of Due looks at.
	maxDue = 500
	// maxLooks is how often Due looks again, where all it has found waits for others.
	maxLooks = 8
)

// Due implements stores.Retries, in one trip and one commit, and one trip more for each
// time that another one of the same consumer goes first.
func (s Store) Due(ctx context.Context, q stores.DueQuery) ([]stores.Retry, error) {
	if s.t.closed.Load() {
		return nil, stores.ErrClosed
	}
	consumer, err := s.t.consumerID(q.Consumer)
	if err != nil {
		return nil, err
	}
	if q.Limit <= 0 || q.Reserve <= 0 {
		return nil, errors.New("postgres: Due: Limit and Reserve must be positive")
	}
	limit := min(q.Limit, maxDue)
	var due []stores.Retry
	for looks, turns := 0, 0; looks < maxLooks; {
		found, err := s.t.reserve(ctx, consumer, q, limit, turns == maxTurns)
		switch {
		case err != nil:
			return nil, err
		case !found.turn:
			turns++
			if err := pause(ctx); err != nil {
				return nil, s.t.unavailable(err)
			}
			continue
		case len(found.due) > 0 || found.seen < limit:
			return found.due, nil
		}
		looks++
	}
	return due, nil
}

// maxTurns is how often Due lets another one of the same consumer go first, before it
// goes on beside it: that one may belong to a process that stands still.
const maxTurns = 30

// pause lets a statement of somebody else end.
func pause(ctx context.Context) error {
	timer := time.NewTimer(time.Millisecond + rand.N(5*time.Millisecond)) //nolint:gosec // spreads load, keeps no secret
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// reserved is what one look has found.
type reserved struct {
	turn bool // nobody else of the consumer was looking
	seen int  // rows, those included that must wait for others
	due  []stores.Retry
}

// reserve takes what may run of the rows that it sees. Two at once would lock rows that
// the other has just reserved, if only for a moment, and whoever claims or releases
// those passes locked rows by. So they take turns, by a lock in a statement before,
// whose end the second statement sees.
func (t *Tables) reserve(ctx context.Context, consumer int32, q stores.DueQuery, limit int, anyway bool) (found reserved, err error) {
	var looked bool
	err = t.db.Batch(ctx,
		Statement{Text: turn, Args: []any{t.LockKey(consumer, nil), anyway}, Read: first(&looked, &found.turn)},
		Statement{Text: t.sql.due, Args: []any{consumer, limit, q.Reserve}, Read: func(rows Rows) (err error) {
			found.due, found.seen, err = scanDue(rows, q.Consumer)
			return err
		}})
	if err != nil {
		return reserved{}, t.unavailable(err)
	}
	return found, nil
}

var turn = qualify("SELECT set_config('millpond.turn', ($2 OR pg_try_advisory_xact_lock($1))::text, true)::boolean")

func scanDue(rows Rows, consumer stores.Consumer) (due []stores.Retry, seen int, err error) {
	for rows.Next() {
		seen++
		var (
			r                                  = stores.Retry{Key: stores.Key{Consumer: consumer}}
			state                              stateScan
			runnable                           bool
			fingerprint, trace, uuid, metadata []byte
		)
		err := rows.Scan(state.with(&runnable, &r.Suspect, &r.Key.ID, &r.Topic, &r.Coordinates, &r.OrderKey,
			&r.Content.Codec, &uuid, &metadata, &r.Content.Payload, &r.LastError, &r.Cause, &fingerprint, &trace)...)
		if err != nil {
			return nil, 0, err
		}
		if !runnable {
			continue
		}
		r.State = state.state(stores.StatusPending)
		r.Content.State, r.Content.UUID = r.State.Content, string(uuid)
		r.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
		copy(r.TraceParent[:], trace)
		if r.Content.Metadata, err = sqlstore.DecodeMetadata(metadata); err != nil {
			r.Err = fmt.Errorf("postgres: %s: %w", r.Key, err)
		}
		due = append(due, r)
	}
	return due, seen, rows.Err()
}

// Release implements stores.Retries, in one trip and one commit.
func (s Store) Release(ctx context.Context, reserved []stores.Retry) error {
	if len(reserved) == 0 {
		return nil
	}
	if err := s.t.ready(ctx); err != nil {
		return err
	}
	numbers, revisions := make([]int64, len(reserved)), make([]int64, len(reserved))
	for i, r := range reserved {
		numbers[i], revisions[i] = sqlstore.ParseVersion(r.State.Version)
	}
	_, err := s.t.db.Send(ctx, Statement{Text: s.t.sql.release, Args: []any{numbers, revisions, s.t.channel}})
	if err != nil {
		return s.t.unavailable(err)
	}
	return nil
}

// Backlog implements stores.Retries, in one trip.
func (s Store) Backlog(ctx context.Context, limit int) ([]stores.Backlog, error) {
	if err := s.t.ready(ctx); err != nil {
		return nil, err
	}
	var all []stores.Backlog
	_, err := s.t.db.Send(ctx, Statement{Text: s.t.sql.backlog, Args: []any{limit}, Read: func(rows Rows) error {
		for rows.Next() {
			var (
				b      stores.Backlog
				oldest int64
			)
			if err := rows.Scan(&b.Consumer.Service, &b.Consumer.Handler, &b.Due, &oldest); err != nil {
				return err
			}
			b.Oldest = time.Duration(oldest) * time.Microsecond
			all = append(all, b)
		}
		return rows.Err()
	}})
	if err != nil {
		return nil, s.t.unavailable(err)
	}
	return all, nil
}

const (
	// A row behind an earlier one of its order key is put off, so that it is not met
	// again with every call. It becomes due when it is its turn: what ends the one before
	// it passes a row by that is locked. So it is put off for long only while the one
	// before it is held here, and cannot end meanwhile; it can be woken, as that lock is
	// the weakest. One that runs, or may begin to just now, cannot be held; then, and
	// where nobody could notice that a row has come, it is asked for often.
	//
	// The inner limit tells the planner that there are few, and the lateral joins that
	// the inbox is read by its key: both tables may be large, and what was known of
	// them when this was planned, old.
	dueText = `WITH due AS MATERIALIZED (
	SELECT number, order_key, due_at, suspect OR reserved AS suspect FROM {schema.}{prefix}failure
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
	SELECT number FROM {schema.}{prefix}failure
	WHERE number = ANY (ARRAY(SELECT before_ FROM behind))
	AND status = 3 AND due_at > now() AND NOT reserved AND NOT presumed
	FOR KEY SHARE SKIP LOCKED
), judged AS (
	SELECT due.number, due.due_at AS since, due.suspect AS had, CASE
		WHEN behind.number IS NULL THEN now() + $3::interval
		WHEN before_ <> ALL (ARRAY(SELECT number FROM held UNION ALL SELECT number FROM due)) THEN now() + interval '1 second'
		WHEN before_ = head THEN greatest(least(behind.due_at, now() + interval '1 minute'), now() + interval '1 second')
		ELSE greatest(behind.due_at, now() + interval '1 minute')
	END AS until, behind.number IS NULL AS runnable
	FROM due LEFT JOIN behind ON behind.number = due.number
	LIMIT 500
), f AS (
	UPDATE {schema.}{prefix}failure f SET ` + revised + `, reserved = runnable, suspect = had, due_at = until
	FROM judged WHERE f.number = judged.number
	RETURNING f.*, runnable, since
)
SELECT runnable, suspect, f.message_id, topic, coordinates, order_key, codec, uuid,
	CASE WHEN runnable THEN metadata END, CASE WHEN runnable THEN payload END, error, cause, i.fingerprint, i.traceparent, ` + stateColumns + `
FROM f LEFT JOIN LATERAL (
	SELECT fingerprint, traceparent FROM {schema.}{prefix}inbox WHERE consumer = $1 AND message_id = f.message_id OFFSET 0
) i ON true
ORDER BY since`

	releaseText = `WITH free AS MATERIALIZED (
	SELECT f.number FROM ROWS FROM (unnest($1::bigint[]), unnest($2::bigint[])) AS r (number, revision)
	JOIN {schema.}{prefix}failure f ON f.number = r.number AND f.revision = r.revision
	WHERE f.status = 3 AND f.reserved
	FOR UPDATE OF f SKIP LOCKED
), released AS (
	UPDATE {schema.}{prefix}failure f SET ` + revised + `, reserved = false, due_at = now()
	FROM free WHERE f.number = free.number
)
SELECT pg_notify($3, '')::text`

	backlogText = `SELECT c.service, c.handler, b.n, b.oldest
FROM {schema.}{prefix}consumer c CROSS JOIN LATERAL (
	SELECT count(*) AS n, (extract(epoch from now() - min(due_at)) * 1000000)::bigint AS oldest FROM (
		SELECT due_at FROM {schema.}{prefix}failure
		WHERE consumer = c.id AND status = 3 AND placement = 1 AND due_at <= now()
		ORDER BY due_at LIMIT $1
	) due
) b WHERE b.n > 0 ORDER BY c.service, c.handler`
)
