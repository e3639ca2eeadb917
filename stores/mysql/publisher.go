package mysql

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// NewPublisher returns a publisher for one transaction of the caller's, or of a handler's: its
// messages are published by the relay of package middleware/outbox if the transaction commits,
// and else by nobody. The transaction is of any *sql.DB on the store's database, and the store
// needs no registered consumer, but its Validate must have been called once.
//
// Messages without a UUID get one. A message that cannot be written is an error that wraps
// stores.ErrInvalidOutput or stores.ErrTooLarge, and leaves the transaction as it was; so is
// an order key where auto_increment_increment is not 1, which wraps stores.ErrUnordered.
//
// Messages with an order key wait for other transactions that have written one with the same
// key, or now and then another: see stores.PublisherConfig.Last. Two transactions that write
// the same keys by several calls in another order each can meet in a deadlock, which the
// server ends.
func NewPublisher(tx *sql.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	on := sqlstore.SenderFunc(func(ctx context.Context, s sqlstore.Statement) (int64, error) { return sendLarge(ctx, tx, s) })
	return producer.New[sqlstore.Sender]("mysql", on, c, s.tables.Emit)
}
