package clients

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/examples/clients/queries"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

//go:generate go run github.com/sqlc-dev/sqlc/cmd/sqlc@v1.31.1 generate --file queries/sqlc.yaml

// Sqlc returns the handler with sqlc, whose code in package queries takes every
// transaction of database/sql.
func Sqlc() message.NoPublishHandlerFunc {
	return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		d, err := decode(msg)
		if err != nil {
			return err
		}
		q := queries.New(tx)
		if err := q.AddDeposit(ctx, queries.AddDepositParams{ID: d.ID, Account: d.Account, Amount: d.Amount}); err != nil {
			return err
		}
		return q.Credit(ctx, queries.CreditParams{ID: d.Account, Amount: d.Amount})
	})
}
