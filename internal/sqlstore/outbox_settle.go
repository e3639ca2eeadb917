package sqlstore

import (
	"context"
	"strings"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// OutputColumns are the columns that never change.
const OutputColumns = `id, created_at, bytes, bucket, destination, topic, type, codec, message_id, order_key, traceparent, metadata, payload, copy_of`

const (
	// The moved rows are locked: otherwise one that an operator deletes meanwhile would come back.
	keepPublished = `INSERT INTO {schema.}{prefix}outbox_history (` + OutputColumns + `, attempts, error, published_at)
SELECT ` + OutputColumns + `, attempts, error, {now} FROM {schema.}{prefix}outbox WHERE %s{for update}`

	// The creation time tells an output from one that got the same number after a failover.
	created = `{us}created_at{/us}`

	DeleteOutputs = `DELETE FROM {schema.}{prefix}outbox WHERE %s`

	refuseOutput = `UPDATE {schema.}{prefix}outbox SET attempts = ?, error = ? WHERE %s`

	failOutput = `INSERT INTO {schema.}{prefix}outbox_failed (` + OutputColumns + `, attempts, error, blocks, failed_at)
SELECT ` + OutputColumns + `, ?{smallint}, ?{text}, ?{boolean}, {now} FROM {schema.}{prefix}outbox WHERE %s{for update}`
)

// Settle implements stores.Outbox: published outputs in one commit, refused ones in another.
func (s Store) Settle(ctx context.Context, q stores.Settlement) error {
	err := s.t.Ready(ctx)
	switch {
	case err != nil:
		return err
	case len(q.Published) == 0:
	case q.Keep:
		err = s.t.db.Write(ctx, func(tx Sender) error {
			if _, err := tx.Send(ctx, s.t.Outputs(keepPublished, q.Published, q.CreatedAt)); err != nil {
				return err
			}
			_, err := tx.Send(ctx, s.t.Outputs(DeleteOutputs, q.Published, q.CreatedAt))
			return err
		})
	default:
		_, err = s.t.exec(ctx, s.t.Outputs(DeleteOutputs, q.Published, q.CreatedAt))
	}
	if err == nil && len(q.Refused) > 0 {
		err = s.t.db.Write(ctx, func(tx Sender) error {
			for _, r := range q.Refused {
				if err := s.t.refuse(ctx, tx, r); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}

// Outputs returns a statement about outputs. Their condition replaces %s.
func (t *Tables) Outputs(text string, numbers []int64, createdAt []time.Time, args ...any) Statement {
	which, more := t.Dialect().keys("id", numbers)
	if len(createdAt) > 0 {
		pairs := make([][2]int64, 0, len(numbers))
		for i, number := range numbers {
			pairs = append(pairs, [2]int64{number, createdAt[i].UnixMicro()})
		}
		which, more = t.Dialect().Pairs([2]string{"id", created}, pairs)
	}
	args = append(args, more...)
	return Statement{Text: t.sql(strings.Replace(text, "%s", which, 1)), Args: args}
}

func (t *Tables) refuse(ctx context.Context, tx Sender, r stores.RefusedOutput) error {
	var createdAt []time.Time
	if !r.CreatedAt.IsZero() {
		createdAt = append(createdAt, r.CreatedAt)
	}
	number, attempts, text := []int64{r.Number}, int64(min(r.Attempts, 1<<15-1)), Text(r.Error, stores.MaxErrorBytes)
	if !r.Failed {
		_, err := tx.Send(ctx, t.Outputs(refuseOutput, number, createdAt, attempts, text))
		return err
	}
	if _, err := tx.Send(ctx, t.Outputs(failOutput, number, createdAt, attempts, text, r.Blocks)); err != nil {
		return err
	}
	_, err := tx.Send(ctx, t.Outputs(DeleteOutputs, number, createdAt))
	return err
}
