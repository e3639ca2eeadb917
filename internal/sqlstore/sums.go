package sqlstore

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	selectCauses = `SELECT g.consumer, g.cause, f.class, f.error, g.pending, g.failed, g.discarded, {us}g.first_at{/us}, {us}g.last_at{/us} FROM (
	SELECT f.consumer, f.cause, max(f.number) AS latest, count(*) AS n, count(CASE WHEN f.status = 3 THEN 1 END) AS pending,
		count(CASE WHEN f.status = 4 THEN 1 END) AS failed, count(CASE WHEN f.status = 5 THEN 1 END) AS discarded, min(f.first_at) AS first_at, max(f.last_at) AS last_at
	FROM {schema.}{prefix}failure f WHERE %s GROUP BY f.consumer, f.cause
	ORDER BY n DESC, latest DESC LIMIT ?) g
JOIN {schema.}{prefix}failure f ON f.number = g.latest ORDER BY g.n DESC, g.latest DESC`

	countMatching = `SELECT count(*), coalesce(max(number), 0) FROM (
	SELECT f.number FROM {schema.}{prefix}failure f WHERE %s ORDER BY f.number DESC LIMIT ?) matching`

	// Counts one consumer up to a limit. One statement counts many consumers.
	countFailed = `SELECT %d AS consumer, %d AS kind, count(*) AS n, {us}min(oldest.at_){/us} AS at_ FROM (
	SELECT first_at AS at_ FROM {schema.}{prefix}failure WHERE consumer = %d AND status = %d ORDER BY number LIMIT %d) oldest`
	countHeld = `SELECT %d AS consumer, %d AS kind, count(*) AS n, {us}min(oldest.at_){/us} AS at_ FROM (
	SELECT first_at AS at_ FROM {schema.}{prefix}quarantine WHERE consumer = %d AND status = 'held' ORDER BY id LIMIT %d) oldest`
	countDue = `SELECT %d AS consumer, 0 AS kind, count(*) AS n, {us}{now}{/us} - {us}min(oldest.at_){/us} AS at_ FROM (
	SELECT due_at AS at_ FROM {schema.}{prefix}failure WHERE consumer = %d AND status = 3 AND placement = 1 AND due_at <= {now}
	ORDER BY due_at LIMIT %d) oldest`
)

// Causes implements stores.Inspector. It reads every message that matches. The class and the error
// are those of the message whose first failure is the latest.
func (s Store) Causes(ctx context.Context, f stores.Filter, limit int) (causes []stores.Cause, err error) {
	err = s.t.matching(ctx, limit, f, func(w *Condition, c Consumers) error {
		text := strings.Replace(selectCauses, "%s", w.String(), 1)
		causes, err = list(ctx, s.t.db, Statement{Text: s.t.sql(text), Args: append(w.Args, limit)}, func(rows Rows) (g stores.Cause, err error) {
			var (
				consumer        int64
				firstAt, lastAt *int64
			)
			err = rows.Scan(&consumer, &g.ID, &g.Class, &g.Error, &g.Pending, &g.Failed, &g.Discarded, &firstAt, &lastAt)
			g.Consumer, g.FirstAt, g.LastAt = c[consumer], Instant(firstAt), Instant(lastAt)
			return g, err
		})
		return err
	})
	return causes, err
}

// Matching implements stores.Inspector.
func (s Store) Matching(ctx context.Context, f stores.Filter, limit int) (n int, highest int64, err error) {
	err = s.t.matching(ctx, limit, f, func(w *Condition, _ Consumers) error {
		_, err = First(ctx, s.t.db, Statement{Text: s.t.sql(strings.Replace(countMatching, "%s", w.String(), 1)), Args: append(w.Args, limit)}, &n, &highest)
		return err
	})
	return n, highest, err
}

// counted is the result of one part of a statement.
type counted struct {
	consumer int64
	kind, n  int
	at       *int64 // in microseconds
}

// count counts many consumers with one statement that has a part for each, and leaves out zeros.
// Every database accepts this many parts.
func (t *Tables) count(ctx context.Context, c Consumers, parts func(consumer int64) []string) (all []counted, err error) {
	const many = 100
	for consumers := range slices.Chunk(c.IDs(), many) {
		var texts []string
		for _, id := range consumers {
			texts = append(texts, parts(id)...)
		}
		_, err := list(ctx, t.db, Statement{Text: t.sql(strings.Join(texts, "\nUNION ALL "))}, func(rows Rows) (one counted, err error) {
			if err = rows.Scan(&one.consumer, &one.kind, &one.n, &one.at); one.n > 0 {
				all = append(all, one)
			}
			return one, err
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b counted) int {
		return cmp.Or(compareConsumers(c[a.consumer], c[b.consumer]), cmp.Compare(a.kind, b.kind))
	})
	return all, nil
}

// Counts implements stores.Inspector. If there are more, Oldest is the oldest of those counted.
func (s Store) Counts(ctx context.Context, limit int) (counts []stores.Count, err error) {
	quarantined := int(stores.StatusDiscarded) + 1
	bound := min(limit, math.MaxInt32)
	err = s.t.inspect(ctx, limit, "", "", func(c Consumers) error {
		all, err := s.t.count(ctx, c, func(id int64) (parts []string) {
			for _, status := range []stores.Status{stores.StatusPending, stores.StatusFailed, stores.StatusDiscarded} {
				parts = append(parts, fmt.Sprintf(countFailed, id, status, id, status, bound+1))
			}
			return append(parts, fmt.Sprintf(countHeld, id, quarantined, id, bound+1))
		})
		for _, one := range all {
			name := "quarantined"
			if one.kind != quarantined {
				name = stores.Status(one.kind).String() //nolint:gosec // one of those above
			}
			counts = append(counts, stores.Count{Consumer: c[one.consumer], Status: name, N: min(one.n, bound), More: one.n > bound, Oldest: Instant(one.at)})
		}
		return err
	})
	return counts, err
}

// Backlog implements stores.Retries in one round trip, plus one for each hundred consumers.
func (s Store) Backlog(ctx context.Context, limit int) (backlog []stores.Backlog, err error) {
	err = s.t.inspect(ctx, limit, "", "", func(c Consumers) error {
		all, err := s.t.count(ctx, c, func(id int64) []string { return []string{fmt.Sprintf(countDue, id, id, limit)} })
		for _, one := range all {
			backlog = append(backlog, stores.Backlog{Consumer: c[one.consumer], Due: one.n, Oldest: time.Duration(value(one.at)) * time.Microsecond})
		}
		return err
	})
	return backlog, err
}
