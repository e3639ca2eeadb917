package tables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// Columns of a message, of a failure called f, its consumer c and its row i in the
// inbox.
const (
	messageColumns = `c.service, c.handler, f.message_id, f.status, i.fingerprint, i.traceparent, f.redrives, (extract(epoch from f.first_at) * 1000000)::bigint, (extract(epoch from f.last_at) * 1000000)::bigint, (extract(epoch from f.due_at) * 1000000)::bigint,
f.error, f.cause, f.topic, f.coordinates, f.order_key, f.uuid, f.codec, coalesce(octet_length(f.payload), 0), ` + stateColumns
	contentColumns = `f.metadata, f.payload, f.history`

	// The inbox is read by its key, however large a page is.
	messageJoins = `
JOIN {schema.}{prefix}consumer c ON c.id = f.consumer
LEFT JOIN LATERAL (
	SELECT fingerprint, traceparent FROM {schema.}{prefix}inbox WHERE consumer = f.consumer AND message_id = f.message_id OFFSET 0
) i ON true`
)

// errLimit: the limit of a query is a mistake in the program.
var errLimit = errors.New("postgres: the limit must be positive")

func (t *Tables) newQuery(ctx context.Context, limit int) (*query, error) {
	if err := t.ready(ctx); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, errLimit
	}
	return &query{names: t.qualified}, nil
}

// collect runs a query and returns all its rows.
func collect[T any](ctx context.Context, t *Tables, q *query, sql string, scan func(Rows) (T, error)) ([]T, error) {
	all := []T{}
	_, err := t.db.Send(ctx, Statement{Text: q.text(sql), Args: q.args, Read: func(rows Rows) error {
		for rows.Next() {
			row, err := scan(rows)
			if err != nil {
				return err
			}
			all = append(all, row)
		}
		return rows.Err()
	}})
	if err != nil {
		return nil, t.unavailable(err)
	}
	return all, nil
}

// one is collect for a query of at most one row: ErrNotFound if there is none.
func one[T any](ctx context.Context, t *Tables, q *query, sql string, scan func(Rows) (T, error)) (T, error) {
	all, err := collect(ctx, t, q, sql, scan)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("postgres: %w", stores.ErrNotFound)
	}
	if err != nil {
		var none T
		return none, err
	}
	return all[0], nil
}

// Messages implements stores.Inspector.
func (s Store) Messages(ctx context.Context, mq stores.MessageQuery) ([]stores.Message, error) {
	q, err := s.t.newQuery(ctx, mq.Limit)
	if err != nil {
		return nil, err
	}
	q.failures(mq.Filter)
	if mq.Before != 0 {
		q.and("f.number < ?", mq.Before)
	}
	return collect(ctx, s.t, q, `SELECT `+messageColumns+`
FROM {schema.}{prefix}failure f`+messageJoins+`
WHERE f.number = ANY (ARRAY(SELECT f.number FROM {schema.}{prefix}failure f WHERE {where} ORDER BY f.number DESC LIMIT `+q.bind(mq.Limit)+`))
ORDER BY f.number DESC`, func(row Rows) (stores.Message, error) { return scanMessage(row, false) })
}

// Message implements stores.Inspector.
func (s Store) Message(ctx context.Context, number int64) (stores.Message, error) {
	q, err := s.t.newQuery(ctx, 1)
	if err != nil {
		return stores.Message{}, err
	}
	q.and("f.number = ?", number)
	return s.t.wholeMessage(ctx, q)
}

// Find implements stores.Inspector.
func (s Store) Find(ctx context.Context, k stores.Key) (stores.Message, error) {
	q, err := s.t.newQuery(ctx, 1)
	if err != nil {
		return stores.Message{}, err
	}
	if err := k.Validate(); err != nil {
		return stores.Message{}, fmt.Errorf("postgres: %w: %w", stores.ErrNotFound, err)
	}
	q.consumers("f", k.Consumer.Service, k.Consumer.Handler)
	q.and("f.message_id = ?", k.ID)
	m, err := s.t.wholeMessage(ctx, q)
	if !errors.Is(err, stores.ErrNotFound) {
		return m, err
	}
	// It is not failed; a message that is completed stays so.
	return one(ctx, s.t, q, `SELECT f.status, f.fingerprint, f.traceparent, (extract(epoch from f.completed_at) * 1000000)::bigint FROM {schema.}{prefix}inbox f WHERE {where} AND f.status = 2`,
		func(row Rows) (stores.Message, error) {
			m := stores.Message{Key: k}
			var fingerprint, trace []byte
			err := row.Scan(&m.Status, &fingerprint, &trace, instant{&m.CompletedAt})
			m.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
			copy(m.TraceParent[:], trace)
			return m, err
		})
}

func (t *Tables) wholeMessage(ctx context.Context, q *query) (stores.Message, error) {
	return one(ctx, t, q, `SELECT `+messageColumns+`, `+contentColumns+` FROM {schema.}{prefix}failure f`+messageJoins+` WHERE {where}`,
		func(row Rows) (stores.Message, error) { return scanMessage(row, true) })
}

// scanMessage reads messageColumns, and contentColumns if it is to be whole.
func scanMessage(row Rows, whole bool) (stores.Message, error) {
	var (
		m                                           stores.Message
		state                                       stateScan
		status                                      stores.Status
		fingerprint, trace, uuid, metadata, history []byte
	)
	dest := state.with(&m.Key.Consumer.Service, &m.Key.Consumer.Handler, &m.Key.ID, &status, &fingerprint, &trace,
		&m.Redrives, instant{&m.FirstAt}, instant{&m.LastAt}, instant{&m.DueAt}, &m.Error, &m.Cause, &m.Topic, &m.Coordinates, &m.OrderKey, &uuid, &m.Codec, &m.PayloadBytes)
	if whole {
		dest = append(dest, &metadata, &m.Payload, &history)
	}
	if err := row.Scan(dest...); err != nil {
		return m, err
	}
	m.FailureState = state.state(status)
	m.Number, _ = sqlstore.ParseVersion(m.Version)
	m.Fingerprint, _ = stores.ParseFingerprint(fingerprint)
	copy(m.TraceParent[:], trace)
	m.UUID = string(uuid)
	if whole {
		var metadataErr, historyErr error
		m.Metadata, metadataErr = sqlstore.DecodeMetadata(metadata)
		if err := json.Unmarshal(history, &m.History); err != nil {
			historyErr = fmt.Errorf("postgres: the history cannot be read: %w", err)
		}
		m.Unreadable = errors.Join(metadataErr, historyErr)
	}
	return m, nil
}

// Causes implements stores.Inspector. It reads all messages that match; the error is
// the one of the message that has failed for the first time last.
func (s Store) Causes(ctx context.Context, f stores.Filter, limit int) ([]stores.Cause, error) {
	q, err := s.t.newQuery(ctx, limit)
	if err != nil {
		return nil, err
	}
	q.failures(f)
	return collect(ctx, s.t, q, `SELECT c.service, c.handler, g.cause, coalesce(e.class, g.class), coalesce(e.error, ''), g.pending, g.failed, g.discarded, (extract(epoch from g.first_at) * 1000000)::bigint, (extract(epoch from g.last_at) * 1000000)::bigint
FROM (
	SELECT f.consumer, f.cause, min(f.class) AS class, count(*) AS n, count(*) FILTER (WHERE f.status = 3) AS pending,
		count(*) FILTER (WHERE f.status = 4) AS failed, count(*) FILTER (WHERE f.status = 5) AS discarded, min(f.first_at) AS first_at, max(f.last_at) AS last_at, max(f.number) AS latest
	FROM {schema.}{prefix}failure f WHERE {where}
	GROUP BY f.consumer, f.cause
	ORDER BY n DESC, latest DESC LIMIT `+q.bind(limit)+`
) g JOIN {schema.}{prefix}consumer c ON c.id = g.consumer
LEFT JOIN {schema.}{prefix}failure e ON e.number = g.latest
ORDER BY g.n DESC, g.latest DESC`, func(row Rows) (g stores.Cause, err error) {
		return g, row.Scan(&g.Consumer.Service, &g.Consumer.Handler, &g.ID, &g.Class, &g.Error, &g.Pending, &g.Failed, &g.Discarded, instant{&g.FirstAt}, instant{&g.LastAt})
	})
}

// Matching implements stores.Inspector.
func (s Store) Matching(ctx context.Context, f stores.Filter, limit int) (n int, highest int64, err error) {
	q, err := s.t.newQuery(ctx, limit)
	if err != nil {
		return 0, 0, err
	}
	q.failures(f)
	found := false
	_, err = s.t.db.Send(ctx, Statement{Text: q.text(`SELECT count(*), coalesce(max(number), 0) FROM (
	SELECT f.number FROM {schema.}{prefix}failure f WHERE {where} ORDER BY f.number DESC LIMIT ` + q.bind(limit) + `
) matching`), Args: q.args, Read: first(&found, &n, &highest)})
	if err != nil {
		return 0, 0, s.t.unavailable(err)
	}
	return n, highest, nil
}

// Counts implements stores.Inspector.
func (s Store) Counts(ctx context.Context, limit int) ([]stores.Count, error) {
	q, err := s.t.newQuery(ctx, limit)
	if err != nil {
		return nil, err
	}
	bound := q.bind(limit)
	return collect(ctx, s.t, q, `SELECT c.service, c.handler, counted.status, least(counted.n, `+bound+`::bigint), counted.n > `+bound+`::bigint, (extract(epoch from counted.oldest) * 1000000)::bigint
FROM {schema.}{prefix}consumer c CROSS JOIN LATERAL (
	SELECT status.number, status.name, count(found.first_at), min(found.first_at)
	FROM (VALUES (3::smallint, 'pending'), (4::smallint, 'failed'), (5::smallint, 'discarded')) status (number, name)
	CROSS JOIN LATERAL (
		SELECT f.first_at FROM {schema.}{prefix}failure f WHERE f.consumer = c.id AND f.status = status.number
		ORDER BY f.number LIMIT `+bound+`::bigint + 1
	) found
	GROUP BY status.number, status.name
	UNION ALL
	SELECT 6, 'quarantined', count(*), min(held.first_at) FROM (
		SELECT q.first_at FROM {schema.}{prefix}quarantine q WHERE q.consumer = c.id AND q.status = 'held'
		ORDER BY q.id LIMIT `+bound+`::bigint + 1
	) held
) counted (rank, status, n, oldest)
WHERE counted.n > 0 ORDER BY c.service, c.handler, counted.rank`, func(row Rows) (n stores.Count, err error) {
		return n, row.Scan(&n.Consumer.Service, &n.Consumer.Handler, &n.Status, &n.N, &n.More, instant{&n.Oldest})
	})
}

// Consumers implements stores.Inspector.
func (s Store) Consumers(ctx context.Context) ([]stores.Consumer, error) {
	q, err := s.t.newQuery(ctx, 1)
	if err != nil {
		return nil, err
	}
	return collect(ctx, s.t, q, `SELECT service, handler FROM {schema.}{prefix}consumer ORDER BY service COLLATE "C", handler COLLATE "C"`,
		func(row Rows) (c stores.Consumer, err error) { return c, row.Scan(&c.Service, &c.Handler) })
}
