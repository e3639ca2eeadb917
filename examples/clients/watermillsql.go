package clients

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// WatermillSQL returns the handler for messages of watermill-sql, which publishes a receipt
// by watermill-sql as well. Deposit, claim and receipt commit together: the transaction is
// the inbox's, not the subscriber's (watermill-sql's TxFromContext).
func WatermillSQL() message.NoPublishHandlerFunc {
	return sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		d, err := decode(msg)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO deposit VALUES ($1, $2, $3)", d.ID, d.Account, d.Amount); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + $1 WHERE id = $2", d.Amount, d.Account); err != nil {
			return err
		}
		receipts, err := wmsql.NewPublisher(wmsql.TxFromStdSQL(tx), wmsql.PublisherConfig{
			SchemaAdapter: wmsql.DefaultPostgreSQLSchema{},
		}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		return receipts.Publish("receipts", message.NewMessage("receipt for "+msg.UUID, msg.Payload))
	})
}
