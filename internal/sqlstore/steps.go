package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

const (
	// Locks the failure's row, so that the lease cannot be taken over between the check and the
	// commit.
	recordStep = `INSERT INTO {schema.}{prefix}once (consumer, message_id, name, at, result)
SELECT f.consumer, f.message_id, ?{text}, {now}, ?{blob} FROM {schema.}{prefix}failure f
WHERE ` + heldBy + `{for update} {step again}`

	// A holder without steps gets one row without a name.
	selectSteps = `SELECT o.name, o.result FROM {schema.}{prefix}failure f
LEFT JOIN {schema.}{prefix}once o ON o.consumer = f.consumer AND o.message_id = f.message_id
WHERE ` + heldBy + ` ORDER BY o.at`

	heldBy = `f.consumer = ? AND f.message_id = ? AND f.number = ? AND f.revision = ? AND f.status = 3 AND f.holder = ?`
)

// RecordStep implements stores.LeaseInbox, in one commit.
func (s Store) RecordStep(ctx context.Context, l stores.HeldLease, step stores.Step) error {
	consumer, err := s.t.Known(l.Key)
	if err != nil {
		return err
	}
	args := append([]any{step.Name, step.Result}, holding(consumer, l)...)
	affected, err := s.t.exec(ctx, Statement{Text: s.t.fixed(recordStep), Args: args})
	if err == nil && affected == 0 { // some databases count 2 when a row is replaced
		err = stores.ErrChanged
	}
	if err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}

// holding returns the arguments of heldBy.
func holding(consumer int64, l stores.HeldLease) []any {
	number, revision := ParseVersion(l.Version)
	return []any{consumer, l.Key.ID, number, revision, l.Holder}
}

// Steps implements stores.LeaseInbox.
func (s Store) Steps(ctx context.Context, l stores.HeldLease) (steps []stores.Step, err error) {
	consumer, err := s.t.Known(l.Key)
	if err != nil {
		return nil, err
	}
	names, err := list(ctx, s.t.db, Statement{Text: s.t.fixed(selectSteps), Args: holding(consumer, l)}, func(rows Rows) (name *string, err error) {
		var result []byte
		if err = rows.Scan(&name, &result); err == nil && name != nil {
			steps = append(steps, stores.Step{Name: *name, Result: result})
		}
		return name, err
	})
	if err == nil && len(names) == 0 {
		err = stores.ErrChanged
	}
	if err != nil {
		return nil, s.t.Explain(ctx, err)
	}
	return steps, nil
}
