package clients

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

type bunDeposit struct {
	bun.BaseModel `bun:"table:deposit"`

	ID      string
	Account string
	Amount  int64
}

// Bun returns the handler with bun. Every query runs on the transaction by Conn.
func Bun(db *sql.DB) message.NoPublishHandlerFunc {
	client := bun.NewDB(db, pgdialect.New())
	return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		d, err := decode(msg)
		if err != nil {
			return err
		}
		row := bunDeposit{ID: d.ID, Account: d.Account, Amount: d.Amount}
		if _, err := client.NewInsert().Model(&row).Conn(tx).Exec(ctx); err != nil {
			return err
		}
		_, err = client.NewUpdate().Table("account").Set("balance = balance + ?", d.Amount).
			Where("id = ?", d.Account).Conn(tx).Exec(ctx)
		return err
	})
}
