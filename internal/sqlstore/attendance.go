package sqlstore

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/stores"
)

var _ stores.Attendance = Store{}

const (
	attendAgain = `UPDATE {schema.}{prefix}process SET seen_at = {now} WHERE consumer = ? AND process = ?`
	attendFirst = `INSERT INTO {schema.}{prefix}process (consumer, process, seen_at) VALUES (?, ?, {now})`
	attendants  = `SELECT process, {us}{now}{/us} - {us}seen_at{/us} FROM {schema.}{prefix}process WHERE consumer = ? AND process <> ?`
	leave       = `DELETE FROM {schema.}{prefix}process WHERE consumer = ? AND process = ? AND ({us}{now}{/us} - {us}seen_at{/us}) >= ?`
)

// Attend implements stores.Attendance.
func (s Store) Attend(ctx context.Context, c stores.Consumer, process string) ([]stores.Attendant, error) {
	consumer, err := s.t.Consumer(c)
	if err != nil {
		return nil, err
	}
	args := []any{consumer, process}
	var others []stores.Attendant
	err = s.t.db.Write(ctx, func(tx Sender) error {
		known, err := tx.Send(ctx, Statement{Text: s.t.fixed(attendAgain), Args: args})
		if err == nil && known == 0 {
			_, err = tx.Send(ctx, Statement{Text: s.t.fixed(attendFirst), Args: args})
		}
		if err != nil {
			return err
		}
		others, err = list(ctx, tx, Statement{Text: s.t.fixed(attendants), Args: args}, func(rows Rows) (a stores.Attendant, err error) {
			var micros int64
			err = rows.Scan(&a.Process, &micros)
			a.Unseen = time.Duration(micros) * time.Microsecond
			return a, err
		})
		return err
	})
	if err != nil {
		return nil, s.t.Explain(ctx, err)
	}
	return others, nil
}

// Leave implements stores.Attendance.
func (s Store) Leave(ctx context.Context, c stores.Consumer, process string, unseen time.Duration) error {
	consumer, err := s.t.Consumer(c)
	if err != nil {
		return err
	}
	err = s.t.db.Write(ctx, func(tx Sender) error {
		_, err := tx.Send(ctx, Statement{Text: s.t.fixed(leave), Args: []any{consumer, process, unseen.Microseconds()}})
		return err
	})
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}
