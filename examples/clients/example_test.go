package clients_test

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"
	wmsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

// watermill-sql's subscriber brings the messages, the inbox the transaction, and
// watermill-sql's publisher writes in that.
func Example_watermillSQL() {
	var (
		db     *sql.DB
		router *message.Router
		inbox  *middleware.Inbox
		logger watermill.LoggerAdapter
	)
	subscriber, err := wmsql.NewSubscriber(wmsql.BeginnerFromStdSQL(db), wmsql.SubscriberConfig{
		SchemaAdapter:  wmsql.DefaultPostgreSQLSchema{},
		OffsetsAdapter: wmsql.DefaultPostgreSQLOffsetsAdapter{},
		ConsumerGroup:  "shop",
	}, logger)
	if err != nil {
		panic(err)
	}
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("charge", "orders", subscriber,
		sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO charge (order_id) VALUES ($1)", msg.UUID); err != nil {
				return err
			}
			receipts, err := wmsql.NewPublisher(wmsql.TxFromStdSQL(tx), wmsql.PublisherConfig{
				SchemaAdapter: wmsql.DefaultPostgreSQLSchema{},
			}, logger)
			if err != nil {
				return err
			}
			return receipts.Publish("receipts", message.NewMessage("receipt for "+msg.UUID, nil))
		}))
}
