package clients_test

import (
	"context"
	"database/sql"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
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

// entDriver is the driver of an ent client on the transaction of the inbox.
type entDriver struct{ dialect.Driver }

func (d entDriver) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(d), nil }

// A generated client of ent works on the inbox's transaction.
func Example_ent() {
	deposit := sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		client := entDriver{entsql.NewDriver(dialect.Postgres, entsql.Conn{ExecQuerier: tx})} // ent.NewClient(ent.Driver(client))
		return client.Exec(ctx, "INSERT INTO deposit (id) VALUES ($1)", []any{msg.UUID}, nil)
	})
	var router *message.Router
	router.AddConsumerHandler("deposits", "deposits", nil, deposit)
}
