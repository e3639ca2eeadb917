package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

// OutputColumns are those that are never changed.
const OutputColumns = `id, created_at, bytes, bucket, destination, topic, type, codec, message_id, order_key, traceparent, metadata, payload`

const (
	keepPublished = `INSERT INTO {schema.}{prefix}outbox_history (` + OutputColumns + `, attempts, error, published_at)
SELECT ` + OutputColumns + `, attempts, error, {now} FROM {schema.}{prefix}outbox WHERE %s`

	deleteOutputs = `DELETE FROM {schema.}{prefix}outbox WHERE %s`

	refuseOutput = `UPDATE {schema.}{prefix}outbox SET attempts = ?, error = ? WHERE id = ?`

	failOutput = `INSERT INTO {schema.}{prefix}outbox_failed (` + OutputColumns + `, attempts, error, blocks, failed_at)
SELECT ` + OutputColumns + `, ?{smallint}, ?{text}, ?{boolean}, {now} FROM {schema.}{prefix}outbox WHERE id = ?`
)

// Settle implements stores.Outbox: what is published in one commit, what was refused in another.
func (s Store) Settle(ctx context.Context, q stores.Settlement) error {
	err := s.t.Ready(ctx)
	switch {
	case err != nil:
		return err
	case len(q.Published) == 0:
	case q.Keep:
		err = s.t.db.Write(ctx, func(tx Sender) error {
			if _, err := tx.Send(ctx, s.t.in(keepPublished, "id", q.Published)); err != nil {
				return err
			}
			_, err := tx.Send(ctx, s.t.in(deleteOutputs, "id", q.Published))
			return err
		})
	default:
		_, err = s.t.exec(ctx, s.t.in(deleteOutputs, "id", q.Published))
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

func (t *Tables) refuse(ctx context.Context, tx Sender, r stores.RefusedOutput) error {
	attempts, text := int64(min(r.Attempts, 1<<15-1)), Text(r.Error, stores.MaxErrorBytes)
	if !r.Failed {
		_, err := tx.Send(ctx, Statement{Text: t.fixed(refuseOutput), Args: []any{attempts, text, r.Number}})
		return err
	}
	if _, err := tx.Send(ctx, Statement{Text: t.fixed(failOutput), Args: []any{attempts, text, r.Blocks, r.Number}}); err != nil {
		return err
	}
	_, err := tx.Send(ctx, t.in(deleteOutputs, "id", []int64{r.Number}))
	return err
}
