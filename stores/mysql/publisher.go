package mysql

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// NewPublisher returns a publisher into one transaction, the caller's or a handler's: the relay of
// package middleware/outbox publishes its messages if, and only if, the transaction commits. The
// transaction may come from any *sql.DB on the store's database. The store needs no registered
// consumer, but its Validate must have been called once.
//
// Messages without a UUID get one. If a message cannot be written, the error wraps
// stores.ErrInvalidOutput or stores.ErrTooLarge, and the transaction is as before. If
// auto_increment_increment is not 1, an order key gives an error that wraps stores.ErrUnordered.
//
// Messages with an order key wait for other transactions that wrote the same key, and sometimes for
// another key: see stores.PublisherConfig.Last. Two transactions that write the same keys in
// several calls and in different order can deadlock; the server then ends one of them.
func NewPublisher(tx *sql.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	switch {
	case tx == nil:
		return producer.Missing("mysql", "transaction")
	case s == nil:
		return producer.Missing("mysql", "store")
	}
	on := sqlstore.SenderFunc(func(ctx context.Context, s sqlstore.Statement) (int64, error) { return sendLarge(ctx, tx, s) })
	return producer.New[sqlstore.Sender]("mysql", on, c, s.tables.Emit)
}
