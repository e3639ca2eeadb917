package sqlstore

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/millpond-go/millpond/stores"
)

const (
	lockReserved = `SELECT f.number, f.revision, f.consumer, f.message_id FROM {schema.}{prefix}failure f WHERE %s AND f.status = 3 AND f.reserved{free}`

	renewReserved = `UPDATE {schema.}{prefix}failure SET due_at = {now} + ? WHERE %s`

	releaseReserved = `UPDATE {schema.}{prefix}failure SET {changed}, reserved = false, due_at = {now} WHERE %s`
)

// Release implements stores.Retries. It skips rows that another transaction is changing.
func (s Store) Release(ctx context.Context, reserved []stores.Retry) error {
	return s.changeReserved(ctx, reserved, releaseReserved)
}

// Renew implements stores.Retries.
func (s Store) Renew(ctx context.Context, reserved []stores.Retry, d time.Duration) error {
	return s.changeReserved(ctx, reserved, renewReserved, d.Microseconds())
}

// Reservations are reserved messages, by column. Their keys are compared as well: after a failover
// that lost commits, numbers are used again.
type Reservations struct {
	Numbers, Revisions, Consumers []int64
	IDs                           [][]byte
}

// Reserved calls change with reserved messages, if there are any.
func (t *Tables) Reserved(ctx context.Context, reserved []stores.Retry, change func(Reservations) error) error {
	if len(reserved) == 0 {
		return nil
	}
	if err := t.Ready(ctx); err != nil {
		return err
	}
	var all Reservations
	for _, r := range reserved {
		n, revision := ParseVersion(r.State.Version)
		all.Numbers, all.Revisions = append(all.Numbers, n), append(all.Revisions, revision)
		all.Consumers, all.IDs = append(all.Consumers, ConsumerNumber(r.Key.Consumer)), append(all.IDs, r.Key.ID)
	}
	if err := change(all); err != nil {
		return t.Explain(ctx, err)
	}
	return nil
}

func (s Store) changeReserved(ctx context.Context, reserved []stores.Retry, text string, args ...any) error {
	return s.t.Reserved(ctx, reserved, func(all Reservations) error {
		return s.t.db.Write(ctx, func(tx Sender) error {
			var free []int64
			locking := func(numbers []int64) Statement { return s.t.in(lockReserved, "f.number", numbers) }
			err := listFree(ctx, s.t, tx, all.Numbers, locking, func(rows Rows) (number int64, err error) {
				var revision, consumer int64
				var id []byte
				if err = rows.Scan(&number, &revision, &consumer, &id); err != nil {
					return number, err
				}
				i := slices.Index(all.Numbers, number)
				if all.Revisions[i] == revision && all.Consumers[i] == consumer && bytes.Equal(all.IDs[i], id) {
					free = append(free, number)
				}
				return number, nil
			})
			if err != nil || len(free) == 0 {
				return err
			}
			_, err = tx.Send(ctx, s.t.in(text, "number", free, args...))
			return err
		})
	})
}
