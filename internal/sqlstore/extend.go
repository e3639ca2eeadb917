package sqlstore

import (
	"context"
	"time"

	"github.com/millpond-go/millpond/stores"
)

// A lease that has expired, by the database's clock, is not renewed: another holder may be about to
// take it over.
const extendLease = `UPDATE {schema.}{prefix}failure SET due_at = {now} + (?{microseconds})
WHERE consumer = ? AND message_id = ? AND number = ? AND revision = ? AND status = 3 AND holder = ? AND due_at > {now}`

// Extend implements stores.LeaseInbox, in one commit.
func (s Store) Extend(ctx context.Context, l stores.HeldLease, d time.Duration) error {
	consumer, err := s.t.Known(l.Key)
	if err != nil {
		return err
	}
	number, revision := ParseVersion(l.Version)
	args := []any{d.Microseconds(), consumer, l.Key.ID, number, revision, l.Holder}
	if err := one(s.t.exec(ctx, Statement{Text: s.t.fixed(extendLease), Args: args})); err != nil {
		return s.t.Explain(ctx, err)
	}
	return nil
}
