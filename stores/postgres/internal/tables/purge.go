package tables

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

var _ stores.Purger = Store{}

// The inbox is read and purged in storage order, by ranges of its pages: this needs no index, and
// reads no page twice. "+ 0" keeps the planner from using the index of the keys, with which each
// range would read all rows of a consumer if the table is not analyzed.
const (
	countPages = `SELECT (pg_relation_size('{schema.}{prefix}inbox'::regclass) / current_setting('block_size')::bigint)`

	surveyText = `SELECT i.consumer, count(*), count(*) FILTER (WHERE i.completed_at <= l.before),
	(extract(epoch from max(i.completed_at) FILTER (WHERE i.completed_at <= l.before)) * 1000000)::bigint,
	(extract(epoch from max(i.completed_at)) * 1000000)::bigint,
	(extract(epoch from min(i.completed_at) FILTER (WHERE i.completed_at > l.before)) * 1000000)::bigint,
	(extract(epoch from max(i.completed_at) FILTER (WHERE i.completed_at <= ('1970-01-01 00:00:00+00'::timestamptz + ($5::bigint * interval '1 microsecond')))) * 1000000)::bigint,
	(extract(epoch from min(i.completed_at) FILTER (WHERE i.completed_at > ('1970-01-01 00:00:00+00'::timestamptz + ($5::bigint * interval '1 microsecond')))) * 1000000)::bigint
FROM {schema.}{prefix}inbox i JOIN (
	SELECT u.id, '1970-01-01 00:00:00+00'::timestamptz + (($4::bigint[])[u.n::integer] * interval '1 microsecond') AS before FROM unnest($3::bigint[]) WITH ORDINALITY AS u (id, n)
) l ON l.id = (i.consumer + 0)
WHERE i.ctid >= $1::tid AND i.ctid < $2::tid AND i.status = 2 GROUP BY i.consumer`

	// Rows that were not announced stay, whatever the query says.
	purgeText = `WITH l AS (
	SELECT c.id, least(c.purged_through - interval '` + margin + `', '1970-01-01 00:00:00+00'::timestamptz + (($4::bigint[])[u.n::integer] * interval '1 microsecond')) AS before
	FROM {schema.}{prefix}consumer c JOIN unnest($3::bigint[]) WITH ORDINALITY AS u (id, n) ON u.id = c.id WHERE c.purged_through IS NOT NULL
)
DELETE FROM {schema.}{prefix}inbox i USING l WHERE l.id = (i.consumer + 0) AND i.ctid >= $1::tid AND i.ctid < $2::tid AND i.status = 2 AND i.completed_at <= l.before`

	purgedRows = `
RETURNING i.consumer, i.message_id, (extract(epoch from i.completed_at) * 1000000)::bigint, i.fingerprint, i.traceparent`

	margin = "5 minutes" // stores.ClockMargin

	rowsOfPage = 64 // roughly
)

// writersOf returns SQL for the transactions that write to a table: each holds a lock until it
// ends.
func writersOf(table string) string {
	return `(SELECT coalesce(string_agg(l.virtualtransaction, ' '), '') FROM pg_catalog.pg_locks l
	WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.relation = '{schema.}{prefix}` + table + `'::regclass
		AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()))`
}

// Overtaken implements stores.Purger: all transactions that held the lock at the first call have
// ended. A claim locks the table before it reads the purge's watermark.
func (s Store) Overtaken(ctx context.Context, mark string) (next string, over bool, err error) {
	err = s.t.shared.Inspect(ctx, 1, func() error {
		found, running := false, ""
		_, err := s.t.db.Send(ctx, Statement{Text: s.t.sql.claimers, Read: first(&found, &running)})
		now := strings.Fields(running)
		if mark != "" {
			now = slices.DeleteFunc(strings.Fields(mark), func(was string) bool { return !slices.Contains(now, was) })
		}
		next, over = strings.Join(now, " "), len(now) == 0
		return err
	})
	return next, over, err
}

// Survey implements stores.Purger.
func (s Store) Survey(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	if q.Kind != stores.PurgeCompleted {
		return s.Store.Survey(ctx, q)
	}
	return s.pages(ctx, q, func(p *pages) error {
		_, err := s.t.db.Send(ctx, Statement{Text: s.t.sql.survey, Args: append(p.args, micros(q.Recent)), Read: p.readFound})
		return err
	})
}

// Purge implements stores.Purger.
func (s Store) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	if q.Kind != stores.PurgeCompleted {
		return s.Store.Purge(ctx, q)
	}
	return s.pages(ctx, q, func(p *pages) error {
		if q.Archive == nil {
			deleted, err := database{s.t}.Exec(ctx, Statement{Text: s.t.sql.purge, Args: p.args})
			p.Deleted = int(deleted)
			return err
		}
		return database{s.t}.Write(ctx, func(tx Querier) error {
			var gone []stores.PurgedRow
			_, err := tx.Send(ctx, Statement{Text: s.t.sql.purgeReturning, Args: p.args, Read: func(rows Rows) (err error) {
				gone, err = p.readGone(rows)
				return err
			}})
			p.Deleted = len(gone)
			if err != nil {
				return err
			}
			return sqlstore.Archived(&q, gone)
		})
	})
}

// pages is a range of the inbox.
type pages struct {
	stores.PurgeRange
	args  []any // the range and the limits
	names sqlstore.Consumers
}

func (s Store) pages(ctx context.Context, q stores.PurgeQuery, f func(*pages) error) (stores.PurgeRange, error) {
	var p pages
	err := s.t.shared.Purgeable(ctx, q, func(limits map[int64]time.Time, names sqlstore.Consumers) error {
		from, end := int64(0), int64(0)
		if q.After != "" {
			var err error
			if from, err = strconv.ParseInt(q.After, 10, 64); err != nil {
				return fmt.Errorf("postgres: there is no range %q of this purge", q.After)
			}
		}
		found := false
		if _, err := s.t.db.Send(ctx, Statement{Text: s.t.sql.pages, Read: first(&found, &end)}); err != nil {
			return err
		}
		to := from + int64(max(1, q.Rows/rowsOfPage))
		ids, before := names.IDs(), []int64{}
		for _, id := range ids {
			before = append(before, limits[id].UnixMicro())
		}
		p = pages{names: names, args: []any{fmt.Sprintf("(%d,0)", from), fmt.Sprintf("(%d,0)", to), ids, before}}
		if to < end {
			p.Next = strconv.FormatInt(to, 10)
		}
		if from >= end || len(ids) == 0 {
			return nil
		}
		return f(&p)
	})
	if err != nil {
		return stores.PurgeRange{}, err
	}
	return p.PurgeRange, nil
}

func (p *pages) readFound(rows Rows) error {
	for rows.Next() {
		var (
			f                                    stores.PurgeFound
			consumer                             int64
			through, newest, left, before, after *int64
		)
		if err := rows.Scan(&consumer, &f.Rows, &f.Purgeable, &through, &newest, &left, &before, &after); err != nil {
			return err
		}
		f.Consumer = p.names[consumer]
		f.Through, f.Newest, f.Left = sqlstore.Instant(through), sqlstore.Instant(newest), sqlstore.Instant(left)
		f.Before, f.After = sqlstore.Instant(before), sqlstore.Instant(after)
		p.Found = append(p.Found, f)
	}
	return rows.Err()
}

func (p *pages) readGone(rows Rows) (gone []stores.PurgedRow, err error) {
	for rows.Next() {
		var (
			consumer           int64
			at                 *int64
			fingerprint, trace []byte
		)
		r := stores.PurgedRow{Kind: stores.PurgeCompleted}
		if err := rows.Scan(&consumer, &r.ID, &at, &fingerprint, &trace); err != nil {
			return nil, err
		}
		r.Consumer, r.Time = p.names[consumer], sqlstore.Instant(at)
		r.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
		copy(r.TraceParent[:], trace)
		gone = append(gone, r)
	}
	return gone, rows.Err()
}
