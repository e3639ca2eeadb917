package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	pendingNumbers = `SELECT o.id, o.bytes FROM {schema.}{prefix}outbox o WHERE `

	// Leaves out outputs behind one that blocks their order key.
	notBlocked = `(o.order_key IS NULL OR NOT EXISTS (
	SELECT 1 FROM {schema.}{prefix}outbox_failed f WHERE f.order_key = o.order_key AND f.destination = o.destination AND f.blocks))`

	blockedKeys = `SELECT f.destination, f.order_key FROM {schema.}{prefix}outbox_failed f WHERE f.blocks AND %s`

	pendingOutputs = `SELECT o.id, {us}o.created_at{/us}, o.bucket, o.attempts, o.destination, o.topic, o.type, o.codec, o.message_id,
	o.order_key, o.traceparent, o.metadata, o.payload
FROM {schema.}{prefix}outbox o WHERE %s ORDER BY o.id`
)

// Pending implements stores.Outbox in two round trips, plus one to learn what may still be
// committed, and one to learn which keys are blocked, where it must.
func (s Store) Pending(ctx context.Context, q stores.PendingQuery) (stores.Pending, error) {
	var p stores.Pending
	err := s.t.Inspect(ctx, q.Limit, func() error {
		through, err := s.t.db.Complete(ctx) // must precede the read of the outputs
		if err == nil && q.Blocked {
			p.Blocked, err = list(ctx, s.t.db, s.t.in(blockedKeys, "f.bucket", q.Buckets), func(rows Rows) (k stores.OutputKey, err error) {
				var key []byte
				err = rows.Scan(&k.Destination, &key)
				k.OrderKey = string(key)
				return k, err
			})
		}
		if err != nil {
			return err
		}
		numbers, more, err := s.t.pendingNumbers(ctx, q)
		if err != nil {
			return err
		}
		p.More, p.Through = more, through
		if len(numbers) == 0 {
			return nil
		}
		if more {
			p.Through = min(through, numbers[len(numbers)-1])
		}
		p.Outputs, err = list(ctx, s.t.db, s.t.in(pendingOutputs, "o.id", numbers), scanOutput)
		return err
	})
	return p, err
}

// pendingNumbers returns the numbers of outputs, up to the query's bytes.
func (t *Tables) pendingNumbers(ctx context.Context, q stores.PendingQuery) (numbers []int64, more bool, err error) {
	w := &Condition{}
	w.And("o.id > ?", q.After)
	w.in(t.Dialect(), "o.bucket", q.Buckets)
	w.And(notBlocked)
	if len(q.ExceptNumbers) > 0 {
		term, args := t.Dialect().In("o.id", q.ExceptNumbers)
		w.And("NOT ("+term+")", args...)
	}
	for _, destination := range padded(q.ExceptDestinations) {
		w.And("o.destination <> ?", destination)
	}
	if len(q.ExceptKeys) > 0 {
		keys := make([][]byte, len(q.ExceptKeys))
		for i, k := range q.ExceptKeys {
			keys[i] = []byte(k.Destination + "\x00" + k.OrderKey)
		}
		term, args := t.Dialect().OrderKeys(keys)
		w.And("(o.order_key IS NULL OR NOT ("+term+"))", args...)
	}
	s := Statement{Text: t.sql(pendingNumbers + w.String() + " ORDER BY o.id LIMIT ?"), Args: append(w.Args, q.Limit)}
	bytes, rows := 0, 0
	_, err = list(ctx, t.db, s, func(r Rows) (number int64, err error) {
		var size int
		err = r.Scan(&number, &size)
		rows++
		if bytes += size; bytes <= q.Bytes || rows == 1 {
			numbers = append(numbers, number)
		}
		return number, err
	})
	return numbers, rows == q.Limit || len(numbers) < rows, err
}

// padded repeats the last value, so that there are few statement texts.
func padded[T any](values []T) []T {
	n := 1
	for n < len(values) {
		n *= 4
	}
	for len(values) > 0 && len(values) < n {
		values = append(slices.Clip(values), values[len(values)-1])
	}
	return values
}

func scanOutput(rows Rows) (o stores.PendingOutput, err error) {
	var (
		created             int64
		id, trace, metadata []byte
	)
	err = rows.Scan(&o.Number, &created, &o.Bucket, &o.Attempts, &o.Destination, &o.Topic, &o.Type, &o.Codec, &id, &o.OrderKey, &trace, &metadata, &o.Payload)
	if err != nil {
		return o, err
	}
	o.ID, o.CreatedAt = string(id), time.UnixMicro(created)
	copy(o.TraceParent[:], trace)
	o.Metadata, o.Err = DecodeMetadata(metadata)
	return o, nil
}
