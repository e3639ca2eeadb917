package tables

import (
	"context"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// statements are the SQL texts for one set of table names.
type statements struct {
	claims                       [claimKinds]string
	takeOver, takeOverOrdered    string
	stepsGone                    string
	behind, behindEarlier, stale string
	look, lookShared             string
	resolve, owned               string

	claimBatch, unclaim, unclaimAll, ownedBatch string

	recordFirst, recordAgain named

	due, release, renew, backlog string

	writers string

	pages, survey, purge, purgeReturning, claimers string
}

// expand returns the text of a statement for these names of tables.
func expand(n sqlstore.Names, sql string) string { return qualify(n.Expand(sql)) }

func newStatements(n sqlstore.Names) statements {
	var claims [claimKinds]string
	for kind := range claims {
		claims[kind] = expand(n, claimText(claimKind(kind)))
	}
	return statements{
		claims:          claims,
		takeOver:        expand(n, heldText+takeOverText),
		takeOverOrdered: expand(n, heldText+firstInOrder+takeOverText),
		stepsGone:       expand(n, stepsGoneText),
		behind:          expand(n, behindText),
		behindEarlier:   expand(n, behindEarlierText),
		stale:           expand(n, staleText),
		look:            expand(n, lookText),
		lookShared:      expand(n, lookSharedText),
		resolve:         expand(n, lookText+resolveText),
		// Raises division_by_zero unless its transaction wrote the row, which keeps the COMMIT
		// after it from running.
		owned: expand(n, `SELECT 1 / count(*) FROM {schema.}{prefix}inbox
WHERE consumer = $1 AND message_id = $2 AND xmin = pg_current_xact_id_if_assigned()::xid`),
		claimBatch:  expand(n, claimBatchText),
		unclaim:     expand(n, unclaimText+oneClaim),
		unclaimAll:  expand(n, unclaimText+someClaims),
		ownedBatch:  expand(n, ownedBatchText),
		recordFirst: newNamed(expand(n, recordFirstText)),
		recordAgain: newNamed(expand(n, recordAgainText)),
		due:         expand(n, dueText),
		release:     expand(n, releaseText),
		renew:       expand(n, renewText),
		backlog:     expand(n, backlogText),

		writers: expand(n, `SELECT (SELECT coalesce(max(id), 0) FROM {schema.}{prefix}outbox), `+writersOf("outbox")),

		pages:          expand(n, countPages),
		survey:         expand(n, surveyText),
		purge:          expand(n, purgeText),
		purgeReturning: expand(n, purgeText+purgedRows),
		claimers:       expand(n, "SELECT "+writersOf("inbox")),
	}
}

const (
	// The row is inserted as completed. Nobody sees it before the commit, so the transaction is its
	// status, and a message costs one row version. The statement asks for the lock before the
	// insert, so the insert never waits.
	insertText = `INSERT INTO {schema.}{prefix}inbox AS i (consumer, message_id, status, fingerprint, traceparent, completed_at)
SELECT $1, $2, 2, $3, $4, now() WHERE `

	keyLock = `pg_try_advisory_xact_lock($5)`

	// For messages with a time.
	timed = `
AND NOT EXISTS (SELECT FROM {schema.}{prefix}consumer WHERE id = $1 AND purged_through > ('1970-01-01 00:00:00+00'::timestamptz + (@time::bigint * interval '1 microsecond')))`

	// server identifies the server and its state. It changes with a restart, and when a dump is
	// restored, which creates the table of the inbox i anew. It comes with the answer, because a
	// pooler may change servers behind a connection.
	server = `((date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint + i.tableoid::bigint)`

	// A double holds the microseconds of some decades to come. extract, which is always exact,
	// takes ten times as long.
	completed = `(date_part('epoch', i.completed_at) * 1000000)::bigint`

	// Tells whether a purge prevented a claim.
	staleText = `SELECT pg_try_advisory_xact_lock($2), (SELECT (extract(epoch from purged_through) * 1000000)::bigint
FROM {schema.}{prefix}consumer WHERE id = $1 AND purged_through > ('1970-01-01 00:00:00+00'::timestamptz + ($3::bigint * interval '1 microsecond')))`

	// For connections whose own timeouts do not enforce the bound. A claim that is not won also has
	// the key's lock, so the bound comes first.
	bounded = `CASE WHEN set_config('idle_in_transaction_session_timeout', @idle, true) IS NOT NULL
AND set_config('statement_timeout', @statement, true) IS NOT NULL THEN ` + keyLock + ` END`

	// For messages that must not pass an earlier one.
	ordered = `
AND NOT EXISTS (SELECT FROM {schema.}{prefix}failure WHERE consumer = $1 AND status = 3 AND order_key = @order
AND ` + blocks + `)`

	// A failed message that the broker did not redeliver in time blocks its order key only until
	// order_until: it may be lost.
	blocks = `(placement = 1 OR order_until > now())`

	// Tells whether the order prevented a claim: a transaction that has the key's lock gets it
	// again.
	behindText = `SELECT pg_try_advisory_xact_lock($2), EXISTS (SELECT FROM {schema.}{prefix}failure WHERE consumer = $1 AND status = 3 AND order_key = $3
AND ` + blocks + `)`

	// The same for a failed message.
	behindEarlierText = `SELECT true, EXISTS (SELECT FROM {schema.}{prefix}failure
WHERE consumer = $1 AND status = 3 AND order_key = $2
AND ` + blocks + ` AND number < $3)`

	lookText = lookColumns + `, ` + stateColumns + lookFrom + `i.consumer = $1 AND i.message_id = $2`

	// lookText for several messages.
	lookSharedText = lookColumns + `, i.message_id, ` + stateColumns + lookFrom + `(i.consumer, i.message_id)` + someKeys

	lookColumns = `SELECT i.status, ` + completed + `, i.fingerprint, i.traceparent, ` + server

	// The failure of a completed row is not looked up. That of another one is read by its key: by a
	// simple join, a plan that was made for a small table may read all failures of the consumer.
	// Only the key's index has them in this order. It has the columns that stateColumns reads.
	lookFrom = `
FROM {schema.}{prefix}inbox i
LEFT JOIN LATERAL (
	SELECT number, revision, status, placement, content, class, attempts, uncounted, presumed, budget_at, due_at
	FROM {schema.}{prefix}failure WHERE i.status <> 2 AND consumer = i.consumer AND message_id >= i.message_id AND message_id <= i.message_id
	ORDER BY message_id LIMIT 1
) f ON true
WHERE `

	// The lock is written to the log, so that COMMIT waits for the standbys, even if the row's own
	// commit did not.
	resolveText = `
FOR NO KEY UPDATE OF i`

	// A failed message is taken over by the transaction that gets both the key's lock and the
	// failure's row without waiting.
	heldText = `WITH held AS MATERIALIZED (
	SELECT number FROM {schema.}{prefix}failure
	WHERE consumer = $1 AND message_id = $2 AND number = $3 AND revision = $4 AND status = 3
	AND pg_try_advisory_xact_lock($5)`

	// Unless an earlier one of its order key is pending.
	firstInOrder = `
	AND NOT EXISTS (SELECT FROM {schema.}{prefix}failure WHERE consumer = $1 AND status = 3 AND order_key = $7
AND ` + blocks + ` AND number < $3)`

	takeOverText = `
	FOR UPDATE SKIP LOCKED
), gone AS (
	DELETE FROM {schema.}{prefix}failure f USING held
	WHERE f.number = held.number
	RETURNING f.consumer, f.order_key, f.number
), steps AS (
	DELETE FROM {schema.}{prefix}once o USING held WHERE o.consumer = $1 AND o.message_id = $2
), ` + nextInOrder + `
UPDATE {schema.}{prefix}inbox i SET status = 2, completed_at = now(), traceparent = $6
FROM gone WHERE i.consumer = $1 AND i.message_id = $2 AND i.status = 3
RETURNING ` + completed + `, ` + server

	// Deletes steps that were recorded after the takeover began and before it locked the failure. A
	// later statement's snapshot sees them, unless the transaction has only one snapshot.
	stepsGoneText = `DELETE FROM {schema.}{prefix}once WHERE consumer = $1 AND message_id = $2
AND (SELECT number FROM {schema.}{prefix}failure WHERE consumer = $1 AND message_id >= $2 AND message_id <= $2 ORDER BY message_id LIMIT 1) IS NULL`

	// Makes the next message of each order key that lost messages due, which wakes one that was
	// postponed for long. Rows that a worker holds are woken too: the worker only keeps them from
	// ending. A row with a stronger lock comes when its own time is up.
	nextInOrder = `next AS MATERIALIZED (
	SELECT first_.number
	FROM (SELECT consumer, order_key, min(number) AS number FROM gone WHERE order_key IS NOT NULL GROUP BY consumer, order_key) g
	CROSS JOIN LATERAL (
		SELECT number FROM {schema.}{prefix}failure
		WHERE number = (
			SELECT n.number FROM {schema.}{prefix}failure n
			WHERE n.consumer = g.consumer AND n.status = 3 AND n.order_key = g.order_key AND n.number > g.number
			AND n.number <> ALL (ARRAY(SELECT number FROM gone))
			ORDER BY n.number LIMIT 1
		) AND status = 3 AND (placement + 0) = 1 AND NOT reserved AND NOT presumed AND holder IS NULL -- not by the index of what is due
		FOR NO KEY UPDATE SKIP LOCKED
	) first_
), woken AS (
	UPDATE {schema.}{prefix}failure f SET due_at = now(), ` + revised + `
	FROM next WHERE f.number = next.number
)`

	// Every change of a failure's row gives it another version. The revision wraps around before it
	// would overflow into the number.
	revised = `revision = (f.revision + 1) & 1048575`

	// stateColumns are the columns that sqlstore.State reads.
	stateColumns = `f.number, f.revision, f.status, f.placement, f.content, f.class, f.attempts, f.uncounted, f.presumed,
(extract(epoch from clock_timestamp() - f.budget_at) * 1000000)::bigint, (extract(epoch from f.due_at - clock_timestamp()) * 1000000)::bigint`
)

// named is the text of a statement whose arguments have names, such as @consumer.
type named struct {
	text  string
	names []string // in the order of the arguments
}

var argument = regexp.MustCompile(`@(\w+)`)

func newNamed(text string) named {
	values := make(pgx.NamedArgs) // each value is its name
	for _, found := range argument.FindAllStringSubmatch(text, -1) {
		values[found[1]] = found[1]
	}
	// Rewriting named arguments needs no connection, and does not fail.
	text, args, _ := values.RewriteQuery(context.Background(), nil, text, nil)
	n := named{text: text}
	for _, name := range args {
		n.names = append(n.names, name.(string)) //nolint:forcetypeassert // all values are names
	}
	return n
}

func (n *named) with(values map[string]any, read func(Rows) error) Statement {
	args := make([]any, len(n.names))
	for i, name := range n.names {
		args[i] = values[name]
	}
	return Statement{Text: n.text, Args: args, Read: read}
}
