package tables

import (
	"bytes"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

const (
	// claimBatchText is claimText for several messages. A claim that does not get its key's lock is
	// left out; nothing waits.
	claimBatchText = `INSERT INTO {schema.}{prefix}inbox AS i (consumer, message_id, status, fingerprint, traceparent, completed_at)
SELECT $1::bigint, c.id, 2, c.fingerprint, c.trace, now()
FROM ROWS FROM (unnest($2::bytea[]), unnest($3::bytea[]), unnest($4::bytea[]), unnest($5::bigint[]), unnest($6::bigint[])) AS c (id, fingerprint, trace, lock, taken)
WHERE pg_try_advisory_xact_lock(c.lock)
AND (c.taken = 0 OR NOT EXISTS (SELECT FROM {schema.}{prefix}consumer WHERE id = $1 AND purged_through > ('1970-01-01 00:00:00+00'::timestamptz + (c.taken * interval '1 microsecond'))))
ON CONFLICT DO NOTHING RETURNING message_id, ` + completed + `, ` + server

	ownRow = `xmin = pg_current_xact_id_if_assigned()::xid AND `

	unclaimText = `DELETE FROM {schema.}{prefix}inbox WHERE ` + ownRow

	oneClaim = `consumer = $1 AND message_id = $2`

	// Making the consumer depend on the element keeps a plan that was made for a small table from
	// reading all rows of the consumer.
	someKeys = ` = ANY (
	SELECT CASE WHEN p.id IS NOT NULL THEN $1::bigint END, p.id FROM unnest($2::bytea[]) AS p (id) WHERE ` + fewIDs + `)`

	someClaims = `(consumer, message_id)` + someKeys

	// ownedBatchText raises division_by_zero unless the transaction has written as many of these
	// rows as it must commit. A join would be faster, but with a plan made for a small table it may
	// read the whole table once for each id.
	ownedBatchText = `SELECT 1 / CASE WHEN count(*) = $3 THEN 1 ELSE 0 END FROM {schema.}{prefix}inbox WHERE ` + ownRow + someClaims

	// These conditions hold for every element, and let the planner expect a single one. Otherwise
	// it expects ten, and if the table is small when the plan is made, it reads the whole table,
	// even after it has grown.
	fewNumbers = `p.one >= 0 AND p.one <= 9223372036854775807`
	fewIDs     = `octet_length(p.id) >= 0 AND octet_length(p.id) <= 2147483647`
)

// ClaimBatch returns the statement that makes claims by inserting their rows, in the order of their
// ids. For each won claim it returns the id, the time in its row, in microseconds, and the server.
// Send Bound first.
func (t *Tables) ClaimBatch(consumer int64, claims []stores.Claim) (text string, args []any) {
	n := len(claims)
	sorted := make([]*stores.Claim, n)
	for i := range claims {
		sorted[i] = &claims[i]
	}
	slices.SortStableFunc(sorted, func(a, b *stores.Claim) int { return bytes.Compare(a.Key.ID, b.Key.ID) })
	ids, fingerprints, traces := make([][]byte, n), make([][]byte, n), make([][]byte, n)
	locks, taken := make([]int64, n), make([]int64, n)
	for i, c := range sorted {
		ids[i], fingerprints[i], traces[i] = c.Key.ID, c.Fingerprint.Bytes(), sqlstore.TraceBytes(&c.TraceParent)
		locks[i], taken[i] = t.LockKey(consumer, c.Key.ID), micros(c.Time)
	}
	return t.sql.claimBatch, []any{consumer, ids, fingerprints, traces, locks, taken}
}

// Unclaim returns the statement that deletes the row of this transaction's claim.
func (t *Tables) Unclaim(consumer int64, id []byte) Statement {
	return Statement{Text: t.sql.unclaim, Args: []any{consumer, id}}
}

// UnclaimAll is Unclaim for several claims.
func (t *Tables) UnclaimAll(consumer int64, ids [][]byte) Statement {
	return Statement{Text: t.sql.unclaimAll, Args: []any{consumer, ids}}
}

// OwnedBatch returns the statement that fails (see NotOurs) unless its transaction has written
// exactly count of the ids' rows.
func (t *Tables) OwnedBatch(consumer int64, ids [][]byte, count int) Statement {
	return Statement{Text: t.sql.ownedBatch, Args: []any{consumer, ids, int64(count)}}
}

// lockShare is a divisor: batches of one process may hold this part of the server's locks. Every
// member takes one, and others need some.
const lockShare = 40

// BatchLimit returns how many members each of that many concurrent batches may have; fewer than 2
// means no batches. At a stricter isolation a batch could fail because of what one member has read.
func (t *Tables) BatchLimit(concurrent int) int {
	now := t.settings.Load()
	if now == nil || t.isolation != pgx.ReadCommitted {
		return 0
	}
	return int(now.locks) / lockShare / max(concurrent, 1)
}
