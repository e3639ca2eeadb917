package sqlstore

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	selectPurged = `SELECT {us}purged_through{/us} FROM {schema.}{prefix}consumer WHERE id = ?`

	readKeys = `SELECT message_id, status, {us}completed_at{/us}, fingerprint, traceparent FROM {schema.}{prefix}inbox
WHERE consumer = ? AND message_id > ? ORDER BY message_id LIMIT ?`

	purgeKeys = `DELETE FROM {schema.}{prefix}inbox WHERE consumer = ? AND status = 2 AND completed_at <= ? AND message_id IN (%s)`
)

// purge is the purge of one range.
type purge struct {
	t *Tables
	stores.PurgeQuery
	limits map[int64]time.Time // by consumer number; 0: for kinds without a consumer
	names  Consumers
	found  map[int64]*stores.PurgeFound
}

// Purgeable checks a query, and calls f with its limits by consumer number.
func (t *Tables) Purgeable(ctx context.Context, q stores.PurgeQuery, f func(limits map[int64]time.Time, names Consumers) error) error {
	return t.Inspect(ctx, q.Rows, func() error {
		if !slices.Contains(stores.PurgeKinds(), q.Kind) {
			return mistakef("%s: %q is not purged: use one of %v", t.name, q.Kind, stores.PurgeKinds())
		}
		limits, names := make(map[int64]time.Time), make(Consumers)
		for _, l := range q.Limits {
			n := int64(0)
			if l.Consumer != (stores.Consumer{}) {
				n = ConsumerNumber(l.Consumer)
			}
			limits[n], names[n] = l.Before, l.Consumer
		}
		return f(limits, names)
	})
}

func (s Store) purge(ctx context.Context, q stores.PurgeQuery, f func(*purge) (stores.PurgeRange, error)) (r stores.PurgeRange, err error) {
	err = s.t.Purgeable(ctx, q, func(limits map[int64]time.Time, names Consumers) error {
		p := &purge{t: s.t, PurgeQuery: q, limits: limits, names: names, found: make(map[int64]*stores.PurgeFound)}
		if r, err = f(p); err != nil {
			return err
		}
		for _, n := range names.IDs() {
			if found := p.found[n]; found != nil {
				r.Found = append(r.Found, *found)
			}
		}
		return nil
	})
	if err != nil {
		return stores.PurgeRange{}, err
	}
	return r, nil
}

// Survey implements stores.Purger.
func (s Store) Survey(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	return s.purge(ctx, q, func(p *purge) (r stores.PurgeRange, err error) {
		if q.Kind == stores.PurgeCompleted {
			_, r.Next, err = p.keys(ctx, s.t.db)
		} else {
			_, r.Next, err = p.numbered(ctx)
		}
		return r, err
	})
}

// Purge implements stores.Purger, in one commit.
func (s Store) Purge(ctx context.Context, q stores.PurgeQuery) (stores.PurgeRange, error) {
	return s.purge(ctx, q, func(p *purge) (stores.PurgeRange, error) {
		if q.Kind == stores.PurgeCompleted {
			return p.completed(ctx)
		}
		return p.byNumber(ctx)
	})
}

// saw notes a row, and reports whether it may be purged.
func (p *purge) saw(consumer int64, at time.Time) bool {
	limit, ok := p.limits[consumer]
	if !ok {
		return false
	}
	f := p.found[consumer]
	if f == nil {
		f = &stores.PurgeFound{Consumer: p.names[consumer]}
		p.found[consumer] = f
	}
	f.Rows++
	f.Newest = later(f.Newest, at)
	if at.After(p.Recent) {
		f.After = earlier(f.After, at)
	} else {
		f.Before = later(f.Before, at)
	}
	if at.After(limit) {
		f.Left = earlier(f.Left, at)
		return false
	}
	f.Purgeable++
	f.Through = later(f.Through, at)
	return true
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// announced lowers a consumer's limit to the announced time.
func (p *purge) announced(ctx context.Context, on Sender, consumer int64) error {
	var purged *int64
	if _, err := First(ctx, on, Statement{Text: p.t.fixed(selectPurged), Args: []any{consumer}}, &purged); err != nil {
		return err
	}
	var mark time.Time
	if purged != nil {
		mark = Instant(purged).Add(-stores.ClockMargin)
	}
	if limit, ok := p.limits[consumer]; ok && mark.Before(limit) {
		p.limits[consumer] = mark
	}
	return nil
}

// place is the key at which a range begins.
func (p *purge) place() (consumer int64, id []byte, err error) {
	ids := p.names.IDs()
	if p.After == "" {
		if len(ids) == 0 {
			return 0, nil, nil
		}
		return ids[0], []byte{}, nil
	}
	before, after, _ := strings.Cut(p.After, ":")
	consumer, err = strconv.ParseInt(before, 10, 64)
	if err == nil {
		id, err = hex.DecodeString(after)
	}
	if err != nil || !slices.Contains(ids, consumer) {
		return 0, nil, mistakef("%s: there is no range %q of this purge", p.t.name, p.After)
	}
	return consumer, id, nil
}

// keys reads a range of the inbox by key, and returns the rows that may be purged.
func (p *purge) keys(ctx context.Context, on Sender) (gone []stores.PurgedRow, next string, err error) {
	consumer, id, err := p.place()
	if err != nil || len(p.names) == 0 {
		return nil, "", err
	}
	var last []byte
	all, err := list(ctx, on, Statement{Text: p.t.fixed(readKeys), Args: []any{consumer, id, p.Rows}}, func(rows Rows) (r stores.PurgedRow, err error) {
		var (
			status             int64
			at                 *int64
			fingerprint, trace []byte
		)
		if err = rows.Scan(&r.ID, &status, &at, &fingerprint, &trace); err != nil {
			return r, err
		}
		last, r.Time, r.Kind, r.Consumer = r.ID, Instant(at), stores.PurgeCompleted, p.names[consumer]
		r.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
		copy(r.TraceParent[:], trace)
		if status == int64(stores.StatusCompleted) && at != nil && p.saw(consumer, r.Time) {
			gone = append(gone, r)
		}
		return r, nil
	})
	switch ids := p.names.IDs(); {
	case err != nil:
		return nil, "", err
	case len(all) == p.Rows:
		next = fmt.Sprintf("%d:%x", consumer, last)
	default:
		if at := slices.Index(ids, consumer) + 1; at < len(ids) {
			next = fmt.Sprintf("%d:", ids[at])
		}
	}
	return gone, next, nil
}

// completed purges a range of the inbox by key.
func (p *purge) completed(ctx context.Context) (r stores.PurgeRange, err error) {
	err = p.t.db.Write(ctx, func(tx Sender) error {
		clear(p.found)
		r = stores.PurgeRange{}
		consumer, _, err := p.place()
		if err != nil || len(p.names) == 0 {
			return err
		}
		if err := p.announced(ctx, tx, consumer); err != nil {
			return err
		}
		gone, next, err := p.keys(ctx, tx)
		r.Next = next
		if err != nil || len(gone) == 0 {
			return err
		}
		if err := Archived(&p.PurgeQuery, gone); err != nil {
			return err
		}
		args := []any{consumer, p.t.Dialect().Time(p.limits[consumer])}
		for _, row := range gone {
			args = append(args, row.ID)
		}
		for len(args) < p.Rows+2 { // so that there is only one text
			args = append(args, gone[0].ID)
		}
		text := strings.Replace(purgeKeys, "%s", strings.TrimSuffix(strings.Repeat("?, ", len(args)-2), ", "), 1)
		deleted, err := tx.Send(ctx, Statement{Text: p.t.fixed(text), Args: args})
		r.Deleted = int(deleted)
		return err
	})
	return r, err
}

// Archived gives rows to the program before they are deleted.
func Archived(q *stores.PurgeQuery, gone []stores.PurgedRow) error {
	if q.Archive == nil || len(gone) == 0 {
		return nil
	}
	if err := q.Archive(gone); err != nil {
		return fmt.Errorf("%w: %w", stores.ErrArchive, err)
	}
	return nil
}
