package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/millpond-go/millpond/stores"
)

const (
	selectMessage = `SELECT {state}, f.consumer, f.message_id, i.fingerprint, i.traceparent, f.redrives,
	{us}f.first_at{/us}, {us}f.last_at{/us}, {us}f.due_at{/us},
	f.cause, f.error, f.topic, f.coordinates, f.order_key, f.uuid, f.codec, coalesce(length(f.payload), 0), ` + Reserved + `, f.holder`

	selectWhole = selectMessage + `, f.metadata, f.facts, f.history, f.payload`

	fromFailures = ` FROM {schema.}{prefix}failure f {inbox of f} WHERE `
)

// scanMessage reads the columns of selectMessage, and those after them into more.
func scanMessage(rows Rows, c Consumers, more ...any) (stores.Message, error) {
	var (
		m                        stores.Message
		state                    State
		consumer                 int64
		fingerprint, trace, uuid []byte
		firstAt, lastAt, dueAt   *int64
		holder                   *string
	)
	into := slices.Concat(state.Into(), []any{
		&consumer, &m.Key.ID, &fingerprint, &trace, &m.Redrives, &firstAt, &lastAt, &dueAt,
		&m.Cause, &m.Error, &m.Topic, &m.Coordinates, &m.OrderKey, &uuid, &m.Codec, &m.PayloadBytes, &m.Reserved, &holder,
	}, more)
	if err := rows.Scan(into...); err != nil {
		return m, err
	}
	m.FailureState = state.Read()
	m.Number, _ = ParseVersion(m.Version)
	m.Key.Consumer = c[consumer]
	m.Fingerprint, _ = stores.ParseFingerprint(fingerprint) // a later version's cannot be shown
	copy(m.TraceParent[:], trace)
	m.UUID, m.Holder = string(uuid), value(holder)
	m.FirstAt, m.LastAt, m.DueAt = Instant(firstAt), Instant(lastAt), Instant(dueAt)
	return m, nil
}

// Messages implements stores.Inspector.
func (s Store) Messages(ctx context.Context, q stores.MessageQuery) (messages []stores.Message, err error) {
	err = s.t.matching(ctx, q.Limit, q.Filter, func(w *Condition, c Consumers) error {
		if q.Before > 0 {
			w.And("f.number < ?", q.Before)
		}
		text := selectMessage + fromFailures + `{page}` + w.String() + ` ORDER BY f.number DESC LIMIT ?{/page}`
		messages, err = list(ctx, s.t.db, Statement{Text: s.t.sql(text), Args: append(w.Args, q.Limit)}, func(rows Rows) (stores.Message, error) {
			return scanMessage(rows, c)
		})
		return err
	})
	return messages, err
}

// Message implements stores.Inspector.
func (s Store) Message(ctx context.Context, number int64) (m stores.Message, err error) {
	err = s.t.inspect(ctx, 1, "", "", func(c Consumers) error {
		m, err = s.t.whole(ctx, number, c)
		return err
	})
	return m, err
}

// whole reads a failed message with its content.
func (t *Tables) whole(ctx context.Context, number int64, c Consumers) (m stores.Message, err error) {
	var encoded Encoded
	var history, payload []byte
	found, err := list(ctx, t.db, Statement{Text: t.fixed(selectWhole + fromFailures + `f.number = ?`), Args: []any{number}}, func(rows Rows) (stores.Message, error) {
		return scanMessage(rows, c, &encoded.Metadata, &encoded.Facts, &history, &payload)
	})
	if err == nil && len(found) == 0 {
		err = stores.ErrNotFound
	}
	if err != nil {
		return stores.Message{}, err
	}
	m = found[0]
	m.Payload = payload
	m.Metadata, m.Facts, m.Unreadable = encoded.decode()
	if err := json.Unmarshal(history, &m.History); err != nil {
		m.Unreadable = errors.Join(m.Unreadable, fmt.Errorf("%s: the history cannot be read: %w", t.name, err))
	}
	return m, nil
}

// Find implements stores.Inspector.
func (s Store) Find(ctx context.Context, k stores.Key) (m stores.Message, err error) {
	err = s.t.inspect(ctx, 1, k.Consumer.Service, k.Consumer.Handler, func(c Consumers) error {
		if err := k.Validate(); err != nil {
			return fmt.Errorf("%w: %w", stores.ErrNotFound, err)
		}
		if len(c) == 0 {
			return stores.ErrNotFound
		}
		m, err = s.t.find(ctx, c.IDs()[0], k, c)
		return err
	})
	return m, err
}

func (t *Tables) find(ctx context.Context, consumer int64, k stores.Key, c Consumers) (stores.Message, error) {
	for {
		row, err := t.db.LookUp(ctx, consumer, k.ID)
		switch {
		case err != nil:
			return stores.Message{}, err
		case !row.Found:
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
		number, _ := ParseVersion(row.Failure.Version)
		m, err := t.whole(ctx, number, c)
		if !errors.Is(err, stores.ErrNotFound) { // if not found, it was completed meanwhile
			return m, err
		}
	}
}

// Consumers implements stores.Inspector.
func (s Store) Consumers(ctx context.Context) (all []stores.Consumer, err error) {
	err = s.t.inspect(ctx, 1, "", "", func(c Consumers) error {
		all = c.Sorted()
		return nil
	})
	return all, err
}
