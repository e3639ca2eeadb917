package sqlite

import (
	"context"
	"errors"

	"github.com/millpond-go/millpond/internal/sqlstore"
)

// Complete implements sqlstore.Database. Transactions that write run one after another.
func (d database) Complete(ctx context.Context) (newest int64, err error) {
	_, err = d.Send(ctx, sqlstore.Statement{
		Text: d.dialect.Fixed(`SELECT coalesce(max(id), 0) FROM {schema.}{prefix}outbox`),
		Read: func(rows sqlstore.Rows) error {
			if rows.Next() {
				err = rows.Scan(&newest)
			}
			return errors.Join(err, rows.Err())
		},
	})
	return newest, err
}
