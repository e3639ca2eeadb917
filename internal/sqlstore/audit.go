package sqlstore

import (
	"context"

	"github.com/millpond-go/millpond/stores"
)

const selectAudit = `SELECT id, {us}at{/us}, verb, actor, reason, consumer, number, message_id, {before}, {after}
FROM {schema.}{prefix}audit WHERE `

// Audit implements stores.Inspector.
func (s Store) Audit(ctx context.Context, before int64, limit int) (entries []stores.AuditEntry, err error) {
	err = s.t.inspect(ctx, limit, "", "", func(c Consumers) error {
		w := &Condition{}
		if before > 0 {
			w.And("id < ?", before)
		}
		text := selectAudit + w.String() + " ORDER BY id DESC LIMIT ?"
		entries, err = list(ctx, s.t.db, Statement{Text: s.t.fixed(text), Args: append(w.Args, limit)}, func(rows Rows) (e stores.AuditEntry, err error) {
			var (
				at       *int64
				consumer int64
			)
			err = rows.Scan(&e.ID, &at, &e.Verb, &e.Actor, &e.Reason, &consumer, &e.Number, &e.MessageID, &e.Before, &e.After)
			e.At, e.Consumer = Instant(at), c[consumer]
			return e, err
		})
		return err
	})
	return entries, err
}
