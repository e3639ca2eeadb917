package sqlite

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// NewPublisher returns a publisher into one transaction, the caller's from [Store.DB] or a
// handler's: the relay of package middleware/outbox publishes its messages if, and only if, the
// transaction commits. The store needs no registered consumer, but its Validate must have been
// called once.
//
// Messages without a UUID get one. If a message cannot be written, the error wraps
// stores.ErrInvalidOutput or stores.ErrTooLarge, and the transaction is as before.
func NewPublisher(tx *sql.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	switch {
	case tx == nil:
		return producer.Missing("sqlite", "transaction")
	case s == nil:
		return producer.Missing("sqlite", "store")
	}
	on := sqlstore.SenderFunc(func(ctx context.Context, s sqlstore.Statement) (int64, error) { return send(ctx, tx, s) })
	return producer.New[sqlstore.Sender]("sqlite", on, c, s.tables.Emit)
}
