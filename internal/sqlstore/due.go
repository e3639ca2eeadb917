package sqlstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/millpond-go/millpond/stores"
)

const (
	// maxDue is how many rows one call of Due reads in one transaction.
	maxDue = 500
	// maxLooks is how often Due searches again while all rows found wait for others.
	maxLooks = 8
)

const (
	// dueRows are due parked messages. They are found without locks, and then locked by their
	// numbers: a locking read of the index would briefly lock the next rows as well, which claims
	// would then skip.
	dueRows = `SELECT f.number, f.message_id FROM {schema.}{prefix}failure f
WHERE f.consumer = ? AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now} ORDER BY f.due_at LIMIT ?`

	lockDue = `SELECT f.number, f.reserved OR f.suspect, f.order_key IS NOT NULL, {size} FROM {schema.}{prefix}failure f
WHERE %s AND f.status = 3 AND f.placement = 1 AND f.due_at <= {now} ORDER BY f.due_at, f.number{free}`

	reserveDue = `UPDATE {schema.}{prefix}failure SET {changed}, suspect = suspect OR reserved, reserved = true, holder = NULL, due_at = {now} + ? WHERE %s`

	loadDue = `SELECT {state}, ` + RetryColumns + ` FROM {schema.}{prefix}failure f {inbox of f} WHERE %s`
)

// RetryColumns are the columns that [ScanRetry] reads of a failure f and its inbox row i, after
// those of the failure's state.
const RetryColumns = `f.message_id, i.fingerprint, i.traceparent, f.topic, f.coordinates, f.order_key,
f.codec, f.uuid, f.metadata, f.facts, f.payload, f.error, f.cause`

// ReserveDue implements Due of stores.Retries for databases without a single statement for it, in
// one round trip if nothing is due. running reports whether a message's handler is running, on
// databases where the handler holds no lock; nil: it holds one.
func (t *Tables) ReserveDue(ctx context.Context, q stores.DueQuery, running func(consumer int64, id string) bool) ([]stores.Retry, error) {
	consumer, err := t.Dueable(q)
	if err != nil {
		return nil, err
	}
	d := due{t: t, consumer: consumer, query: q}
	limit := min(q.Limit, maxDue)
	for range maxLooks {
		seen := 0
		var numbers []int64
		_, err := list(ctx, t.db, Statement{Text: t.fixed(dueRows), Args: []any{consumer, limit + 1}}, func(rows Rows) (n int64, err error) {
			var id string
			err = rows.Scan(&n, &id)
			if seen++; len(numbers) < limit && (running == nil || !running(consumer, id)) {
				numbers = append(numbers, n)
			}
			return n, err
		})
		if err == nil && len(numbers) == 0 {
			return nil, nil
		}
		var found []stores.Retry
		if err == nil {
			err = t.db.Write(ctx, func(tx Sender) error {
				found, err = d.reserve(ctx, tx, numbers)
				return err
			})
		}
		if err != nil {
			return nil, t.Explain(ctx, err)
		}
		if len(found) > 0 || seen <= limit {
			return found, nil
		}
	}
	return nil, nil
}

// Dueable returns the consumer of a query, or an error if the query is invalid.
func (t *Tables) Dueable(q stores.DueQuery) (int64, error) {
	consumer, err := t.Consumer(q.Consumer)
	if err == nil && (q.Limit <= 0 || q.Reserve <= 0 || q.MaxBytes < 0) {
		err = mistakef("%s: due: Limit and Reserve must be positive, and MaxBytes not negative", t.name)
	}
	return consumer, err
}

// due is one call of Due.
type due struct {
	t        *Tables
	consumer int64
	query    stores.DueQuery
}

// in returns a statement about the failures with some numbers. In the text %s stands for their
// condition, whose arguments come last.
func (t *Tables) in(text, column string, numbers []int64, args ...any) Statement {
	which, more := t.Dialect().keys(column, numbers)
	return Statement{Text: t.sql(strings.Replace(text, "%s", which, 1)), Args: append(args, more...)}
}

// reserve reserves due rows that nobody has reserved. It postpones rows behind another one, so that
// they are not found again and again.
func (d *due) reserve(ctx context.Context, tx Sender, numbers []int64) ([]stores.Retry, error) {
	var free, ordered []int64
	suspect, sizes := make(map[int64]bool), make(map[int64]int)
	locking := func(numbers []int64) Statement { return d.t.in(lockDue, "f.number", numbers) }
	err := listFree(ctx, d.t, tx, numbers, locking, func(rows Rows) (number int64, err error) {
		var had, hasAnOrder bool
		var size int
		err = rows.Scan(&number, &had, &hasAnOrder, &size)
		suspect[number], sizes[number] = had, size
		free = append(free, number)
		if hasAnOrder {
			ordered = append(ordered, number)
		}
		return number, err
	})
	if err == nil && len(ordered) > 0 {
		free, err = d.putOff(ctx, tx, free, ordered)
	}
	if err != nil || len(free) == 0 {
		return nil, err
	}
	free = d.fitting(free, sizes)
	if _, err := tx.Send(ctx, d.t.in(reserveDue, "number", free, d.query.Reserve.Microseconds())); err != nil {
		return nil, err
	}
	return d.load(ctx, tx, free, suspect)
}

// fitting returns as many of the first rows as the query has bytes for.
func (d *due) fitting(numbers []int64, sizes map[int64]int) []int64 {
	sum := 0
	for i, number := range numbers {
		if sum += sizes[number]; i > 0 && d.query.MaxBytes > 0 && sum > d.query.MaxBytes {
			return numbers[:i]
		}
	}
	return numbers
}

// load reads the reserved rows, in their order.
func (d *due) load(ctx context.Context, tx Sender, numbers []int64, suspect map[int64]bool) ([]stores.Retry, error) {
	loaded := make(map[int64]stores.Retry, len(numbers))
	_, err := list(ctx, tx, d.t.in(loadDue, "f.number", numbers), func(rows Rows) (number int64, err error) {
		r, err := ScanRetry(rows, d.query.Consumer)
		number, _ = ParseVersion(r.State.Version)
		r.Suspect = suspect[number]
		loaded[number] = r
		return number, err
	})
	found := make([]stores.Retry, 0, len(loaded))
	for _, number := range numbers {
		if r, ok := loaded[number]; ok {
			found = append(found, r)
		}
	}
	return found, err
}

// ScanRetry reads columns into before, then the columns of a failure's state, and then
// [RetryColumns].
func ScanRetry(rows Rows, c stores.Consumer, before ...any) (stores.Retry, error) {
	var (
		r                  = stores.Retry{Key: stores.Key{Consumer: c}}
		state              State
		fingerprint, trace []byte
		uuid               []byte
		encoded            Encoded
	)
	into := append(append(before, state.Into()...), &r.Key.ID, &fingerprint, &trace, &r.Topic, &r.Coordinates, &r.OrderKey,
		&r.Content.Codec, &uuid, &encoded.Metadata, &encoded.Facts, &r.Content.Payload, &r.LastError, &r.Cause)
	if err := rows.Scan(into...); err != nil {
		return r, err
	}
	r.State = state.Read()
	r.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // a later version's cannot be compared
	copy(r.TraceParent[:], trace)
	r.Content.State, r.Content.UUID = r.State.Content, string(uuid)
	if r.Content.Metadata, r.Content.Facts, r.Err = encoded.decode(); r.Err != nil {
		r.Err = fmt.Errorf("%s: %w", r.Key, r.Err)
	}
	return r, nil
}
