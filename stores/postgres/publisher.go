package postgres

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// NewPublisher returns a publisher into one transaction, the caller's or a handler's: the relay of
// package middleware/outbox publishes its messages if, and only if, the transaction commits. The
// transaction may come from any pool on the store's database. The store needs no registered
// consumer, but its Validate must have been called once.
//
// Messages without a UUID get one. If a message cannot be written, the error wraps
// stores.ErrInvalidOutput or stores.ErrTooLarge, and the transaction is as before.
//
// Messages with an order key wait for other transactions that wrote the same key: see
// stores.PublisherConfig.Last. Two transactions that write the same keys in several calls and in
// different order can deadlock; the server then ends one of them.
func NewPublisher(tx pgx.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	switch {
	case tx == nil:
		return producer.Missing("postgres", "transaction")
	case s == nil:
		return producer.Missing("postgres", "store")
	}
	on := sqlstore.SenderFunc(func(ctx context.Context, s tables.Statement) (int64, error) { return send(ctx, tx, s) })
	return producer.New[tables.Querier]("postgres", on, c, s.tables.Emit)
}
