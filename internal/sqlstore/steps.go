package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

const (
	// The failure's row is locked, so that nobody takes the lease over between the look at it
	// and the commit.
	recordStep = `INSERT INTO {schema.}{prefix}once (consumer, message_id, name, at, result)
SELECT f.consumer, f.message_id, ?{text}, {now}, ?{blob} FROM {schema.}{prefix}failure f
WHERE f.consumer = ? AND f.message_id = ? AND f.number = ? AND f.revision = ? AND f.status = 3 AND f.holder = ?{for update} {step again}`

	selectSteps = `SELECT name, result FROM {schema.}{prefix}once WHERE consumer = ? AND message_id = ? ORDER BY at`
)

// RecordStep implements stores.LeaseInbox, in one commit.
func (s Store) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	consumer, err := s.t.Known(l.Key)
	if err != nil {
		return err
	}
	number, revision := ParseVersion(l.Version)
	args := []any{step.Name, step.Result, consumer, l.Key.ID, number, revision, l.Holder}
	affected, err := s.t.exec(ctx, Statement{Text: s.t.fixed(recordStep), Args: args})
	if err == nil && affected == 0 { // the count is 2 where one is replaced, on some
		err = stores.ErrChanged
	}
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}

// Steps implements stores.LeaseInbox.
func (s Store) Steps(ctx context.Context, k stores.Key) ([]stores.Step, error) {
	consumer, err := s.t.Known(k)
	if err != nil {
		return nil, err
	}
	steps, err := list(ctx, s.t.db, Statement{Text: s.t.fixed(selectSteps), Args: []any{consumer, k.ID}}, func(rows Rows) (step stores.Step, err error) {
		return step, rows.Scan(&step.Name, &step.Result)
	})
	if err != nil {
		return nil, s.t.Explain(ctx, err)
	}
	return steps, nil
}
