package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// serveWithoutInbox is the same service as most are written: a transaction for each
// delivery, and an ack after it.
func serveWithoutInbox(ctx context.Context, orders message.Subscriber, deduct message.NoPublishHandlerFunc) error {
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddConsumerHandler("deduct", topic, orders, func(msg *message.Message) error {
		if _, err := parseOrder(msg.Payload); err != nil {
			return nil //nolint:nilerr // it would come again for ever, so it is dropped
		}
		return deduct(msg)
	})
	return router.Run(ctx)
}

func (d *sqliteDatabase) deductPlainly(msg *message.Message) (err error) {
	tx, err := d.store.DB().BeginTx(msg.Context(), nil)
	if err != nil {
		return err
	}
	if err := deductSQLite(msg.Context(), tx, msg); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (d *postgresDatabase) deductPlainly(msg *message.Message) error {
	return pgx.BeginFunc(msg.Context(), d.pool, func(tx pgx.Tx) error {
		return deductPostgres(msg.Context(), tx, msg)
	})
}
