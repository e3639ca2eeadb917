package main

// The service. This file is what you would write; the rest of the folder is the rig
// that feeds it and hurts it.

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
)

// schema is the service's own. The ledger has no unique key on purpose, so that an
// event that is applied twice shows.
const schema = `
CREATE TABLE IF NOT EXISTS stock     (sku TEXT PRIMARY KEY, quantity BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS deduction (event_id TEXT NOT NULL, sku TEXT NOT NULL, quantity BIGINT NOT NULL);`

// serve consumes orders until ctx ends or there are none any more. These are the ten
// lines that matter.
func serve(ctx context.Context, store middleware.Store, orders message.Subscriber,
	deduct message.NoPublishHandlerFunc, logger *slog.Logger,
) error {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "inventory",
		Keys:    keys.First(keys.Payload("event_id")), // where this producer has put the id
		Logger:  logger,
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("deduct", topic, orders, deduct)
	return router.Run(ctx)
}

// deductSQLite is the handler on SQLite. What it writes through tx is committed
// together with the proof that this event is done.
func deductSQLite(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
	o, err := parseOrder(msg.Payload)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE stock SET quantity = quantity - ? WHERE sku = ?`, o.Quantity, o.SKU); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO deduction (event_id, sku, quantity) VALUES (?, ?, ?)`, o.EventID, o.SKU, o.Quantity)
	return err
}

// deductPostgres is the same on PostgreSQL, with pgx's own transaction.
func deductPostgres(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
	o, err := parseOrder(msg.Payload)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE stock SET quantity = quantity - $1 WHERE sku = $2`, o.Quantity, o.SKU); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `INSERT INTO deduction (event_id, sku, quantity) VALUES ($1, $2, $3)`, o.EventID, o.SKU, o.Quantity)
	return err
}
