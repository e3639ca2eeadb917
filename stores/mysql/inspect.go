package mysql

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// messageColumns are what scanMessage reads.
const messageColumns = stateColumns + ", " + sqlstore.MessageColumns

const failureTables = ` FROM {schema.}{prefix}failure f
	LEFT JOIN {schema.}{prefix}inbox i ON i.consumer = f.consumer AND i.message_id = f.message_id `

// scanMessage reads messageColumns, and more columns into those given.
func scanMessage(scan sqlstore.Scan, c sqlstore.Consumers, more ...any) (stores.Message, error) {
	var state stateScan
	return sqlstore.ScanMessage(scan, c, state.into(), state.state, more...)
}

// Messages implements stores.Inspector.
func (s *Store) Messages(ctx context.Context, q stores.MessageQuery) (messages []stores.Message, err error) {
	err = s.inspect(ctx, q.Limit, func() error {
		c, err := s.consumersNamed(ctx, q.Service, q.Handler)
		if err != nil {
			return err
		}
		w := matching(q.Filter, c)
		if q.Before > 0 {
			w.And("f.number < ?", q.Before)
		}
		query := s.text(`SELECT ` + messageColumns + failureTables + `WHERE ` + w.String() + ` ORDER BY f.number DESC LIMIT ?`)
		messages, err = sqlstore.List(ctx, s.db, query, append(w.Args, q.Limit), func(scan sqlstore.Scan) (stores.Message, error) {
			return scanMessage(scan, c)
		})
		return err
	})
	return messages, err
}

// Message implements stores.Inspector.
func (s *Store) Message(ctx context.Context, number int64) (m stores.Message, err error) {
	err = s.inspect(ctx, 1, func() error {
		c, err := s.consumersNamed(ctx, "", "")
		if err != nil {
			return err
		}
		m, err = s.whole(ctx, number, c)
		return err
	})
	return m, err
}

// whole reads a failed message with everything that is kept of it.
func (s *Store) whole(ctx context.Context, number int64, c sqlstore.Consumers) (stores.Message, error) {
	var metadata, history, payload []byte
	row := s.db.QueryRowContext(ctx, s.text(`SELECT `+messageColumns+`, f.metadata, f.history, f.payload`+failureTables+`WHERE f.number = ?`), number)
	m, err := scanMessage(row.Scan, c, &metadata, &history, &payload)
	if errors.Is(err, sql.ErrNoRows) {
		return stores.Message{}, stores.ErrNotFound
	}
	if err != nil {
		return stores.Message{}, err
	}
	m.Payload = payload
	m.Metadata, m.Unreadable = sqlstore.DecodeMetadata(metadata)
	if err := json.Unmarshal(history, &m.History); err != nil {
		m.Unreadable = errors.Join(m.Unreadable, fmt.Errorf("mysql: the history cannot be read: %w", err))
	}
	return m, nil
}

// Find implements stores.Inspector.
func (s *Store) Find(ctx context.Context, k stores.Key) (m stores.Message, err error) {
	err = s.inspect(ctx, 1, func() error {
		c, err := s.consumersNamed(ctx, k.Consumer.Service, k.Consumer.Handler)
		if err != nil {
			return err
		}
		for id, name := range c {
			if name == k.Consumer {
				m, err = s.find(ctx, id, k, c)
				return err
			}
		}
		return stores.ErrNotFound
	})
	return m, err
}

func (s *Store) find(ctx context.Context, consumer int64, k stores.Key, c sqlstore.Consumers) (stores.Message, error) {
	for {
		row, err := s.lookUp(ctx, consumer, k.ID)
		switch {
		case err != nil:
			return stores.Message{}, err
		case !row.found, row.Status == stores.StatusProcessing:
			return stores.Message{}, stores.ErrNotFound
		case row.Status == stores.StatusCompleted:
			m := stores.Message{Key: stores.Key{Consumer: k.Consumer, ID: slices.Clone(k.ID)}, CompletedAt: row.CompletedAt}
			m.Status = row.Status
			m.Fingerprint, _ = stores.ParseFingerprint(row.Fingerprint)
			copy(m.TraceParent[:], row.Trace)
			return m, nil
		case row.Failure.Version == 0:
			return stores.Message{}, fmt.Errorf("%w: the row has status %d, which a newer version has written", stores.ErrUnavailable, row.Status)
		}
		number, _ := sqlstore.ParseVersion(row.Failure.Version)
		m, err := s.whole(ctx, number, c)
		if !errors.Is(err, stores.ErrNotFound) { // if so it was completed in between
			return m, err
		}
	}
}

// Causes implements stores.Inspector. It reads all messages that match; the class and
// the error are those of the message that has failed for the first time last.
func (s *Store) Causes(ctx context.Context, f stores.Filter, limit int) (causes []stores.Cause, err error) {
	err = s.inspect(ctx, limit, func() error {
		c, err := s.consumersNamed(ctx, f.Service, f.Handler)
		if err != nil {
			return err
		}
		w := matching(f, c)
		query := s.text(`SELECT g.consumer, g.cause, f.class, f.error, g.pending, g.failed, g.discarded, g.first_at, g.last_at FROM (
				SELECT f.consumer, f.cause, max(f.number) AS latest, count(*) AS n, CAST(sum(f.status = 3) AS SIGNED) AS pending,
					CAST(sum(f.status = 4) AS SIGNED) AS failed, CAST(sum(f.status = 5) AS SIGNED) AS discarded, min(f.first_at) AS first_at, max(f.last_at) AS last_at
				FROM {schema.}{prefix}failure f WHERE ` + w.String() + ` GROUP BY f.consumer, f.cause
				ORDER BY n DESC, latest DESC LIMIT ?) g
			JOIN {schema.}{prefix}failure f ON f.number = g.latest ORDER BY g.n DESC, g.latest DESC`)
		causes, err = sqlstore.List(ctx, s.db, query, append(w.Args, limit), func(scan sqlstore.Scan) (g stores.Cause, err error) {
			var (
				consumer        int64
				firstAt, lastAt *int64
			)
			err = scan(&consumer, &g.ID, &g.Class, &g.Error, &g.Pending, &g.Failed, &g.Discarded, &firstAt, &lastAt)
			g.Consumer, g.FirstAt, g.LastAt = c[consumer], sqlstore.Instant(firstAt), sqlstore.Instant(lastAt)
			return g, err
		})
		return err
	})
	return causes, err
}

// Matching implements stores.Inspector.
func (s *Store) Matching(ctx context.Context, f stores.Filter, limit int) (n int, highest int64, err error) {
	err = s.inspect(ctx, limit, func() error {
		c, err := s.consumersNamed(ctx, f.Service, f.Handler)
		if err != nil {
			return err
		}
		w := matching(f, c)
		query := s.text(`SELECT count(*), coalesce(max(number), 0) FROM (
			SELECT f.number FROM {schema.}{prefix}failure f WHERE ` + w.String() + ` ORDER BY f.number DESC LIMIT ?) matching`)
		return s.db.QueryRowContext(ctx, query, append(w.Args, limit)...).Scan(&n, &highest)
	})
	return n, highest, err
}

// Counts implements stores.Inspector. Where there are more, Oldest is that of those
// counted.
func (s *Store) Counts(ctx context.Context, limit int) (counts []stores.Count, err error) {
	err = s.inspect(ctx, limit, func() error {
		c, err := s.consumersNamed(ctx, "", "")
		if err != nil {
			return err
		}
		failed := s.text(`SELECT count(*), min(first_at) FROM (
			SELECT first_at FROM {schema.}{prefix}failure WHERE consumer = ? AND status = ? LIMIT ?) counted`)
		held := s.text(`SELECT count(*), min(first_at) FROM (
			SELECT first_at FROM {schema.}{prefix}quarantine WHERE consumer = ? AND status = ? LIMIT ?) counted`)
		bound := min(limit, math.MaxInt32)
		for _, id := range c.IDs() {
			for _, kind := range []struct {
				name, query string
				status      any
			}{
				{stores.StatusPending.String(), failed, stores.StatusPending},
				{stores.StatusFailed.String(), failed, stores.StatusFailed},
				{stores.StatusDiscarded.String(), failed, stores.StatusDiscarded},
				{"quarantined", held, []byte(stores.QuarantineHeld)},
			} {
				count := stores.Count{Consumer: c[id], Status: kind.name}
				var oldest *int64
				if err := s.db.QueryRowContext(ctx, kind.query, id, kind.status, bound+1).Scan(&count.N, &oldest); err != nil {
					return err
				}
				if count.N == 0 {
					continue
				}
				count.More, count.N, count.Oldest = count.N > bound, min(count.N, bound), sqlstore.Instant(oldest)
				counts = append(counts, count)
			}
		}
		return nil
	})
	return counts, err
}

// Consumers implements stores.Inspector.
func (s *Store) Consumers(ctx context.Context) (all []stores.Consumer, err error) {
	err = s.inspect(ctx, 1, func() error {
		c, err := s.consumersNamed(ctx, "", "")
		all = c.Sorted()
		return err
	})
	return all, err
}

// Audit implements stores.Inspector.
func (s *Store) Audit(ctx context.Context, before int64, limit int) (entries []stores.AuditEntry, err error) {
	err = s.inspect(ctx, limit, func() error {
		c, err := s.consumersNamed(ctx, "", "")
		if err != nil {
			return err
		}
		w := &sqlstore.Condition{}
		if before > 0 {
			w.And("id < ?", before)
		}
		query := s.text("SELECT id, at, verb, actor, reason, consumer, number, message_id, `before`, `after` FROM {schema.}{prefix}audit WHERE " + w.String() + " ORDER BY id DESC LIMIT ?")
		entries, err = sqlstore.List(ctx, s.db, query, append(w.Args, limit), func(scan sqlstore.Scan) (e stores.AuditEntry, err error) {
			var (
				at       *int64
				consumer int64
			)
			err = scan(&e.ID, &at, &e.Verb, &e.Actor, &e.Reason, &consumer, &e.Number, &e.MessageID, &e.Before, &e.After)
			e.At, e.Consumer = sqlstore.Instant(at), c[consumer]
			return e, err
		})
		return err
	})
	return entries, err
}
