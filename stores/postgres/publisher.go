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

// NewPublisher returns a publisher for one transaction of the caller's, or of a handler's: its
// messages are published by the relay of package middleware/outbox if the transaction commits,
// and else by nobody. The transaction is of any pool on the store's database, and the store
// needs no registered consumer, but its Validate must have been called once.
//
// Messages without a UUID get one. A message that cannot be written is an error that wraps
// stores.ErrInvalidOutput or stores.ErrTooLarge, and leaves the transaction as it was.
//
// Messages with an order key wait for other transactions that have written one with the same
// key: see stores.PublisherConfig.Last. Two transactions that write the same keys by several
// calls in another order each can meet in a deadlock, which the server ends.
func NewPublisher(tx pgx.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	on := sqlstore.SenderFunc(func(ctx context.Context, s tables.Statement) (int64, error) { return send(ctx, tx, s) })
	return producer.New[tables.Querier]("postgres", on, c, s.tables.Emit)
}
