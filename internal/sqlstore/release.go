package sqlstore

import (
	"context"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	lockReserved = `SELECT f.number, f.revision FROM {schema.}{prefix}failure f WHERE %s AND f.status = 3 AND f.reserved{free}`

	renewReserved = `UPDATE {schema.}{prefix}failure SET due_at = {now} + ? WHERE %s`

	releaseReserved = `UPDATE {schema.}{prefix}failure SET {changed}, reserved = false, due_at = {now} WHERE %s`
)

// Release implements stores.Retries. Rows that another transaction is changing are left
// alone.
func (s Store) Release(ctx context.Context, reserved []stores.Retry) error {
	return s.changeReserved(ctx, reserved, releaseReserved)
}

// Renew implements stores.Retries.
func (s Store) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	return s.changeReserved(ctx, reserved, renewReserved, d.Microseconds())
}

// Reserved calls change with the numbers and revisions of messages, if there are any.
func (t *Tables) Reserved(ctx context.Context, reserved []stores.Retry, change func(numbers, revisions []int64) error) error {
	if len(reserved) == 0 {
		return nil
	}
	if err := t.Ready(ctx); err != nil {
		return err
	}
	numbers, revisions := make([]int64, len(reserved)), make([]int64, len(reserved))
	for i, r := range reserved {
		numbers[i], revisions[i] = ParseVersion(r.State.Version)
	}
	if err := change(numbers, revisions); err != nil {
		return t.Explain(ctx, err)
	}
	return nil
}

func (s Store) changeReserved(ctx context.Context, reserved []stores.Retry, text string, args ...any) error {
	return s.t.Reserved(ctx, reserved, func(numbers, revisions []int64) error {
		return s.t.db.Write(ctx, func(tx Sender) error {
			var free []int64
			_, err := list(ctx, tx, s.t.in(lockReserved, "f.number", numbers), func(rows Rows) (number int64, err error) {
				var revision int64
				if err = rows.Scan(&number, &revision); err == nil && revisions[slices.Index(numbers, number)] == revision {
					free = append(free, number)
				}
				return number, err
			})
			if err != nil || len(free) == 0 {
				return err
			}
			_, err = tx.Send(ctx, s.t.in(text, "number", free, args...))
			return err
		})
	})
}
