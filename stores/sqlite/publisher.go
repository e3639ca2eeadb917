package sqlite

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
)

// NewPublisher returns a publisher for one transaction of the caller's, from [Store.DB], or of
// a handler's: its messages are published by the relay of package middleware/outbox if the
// transaction commits, and else by nobody. The store needs no registered consumer,
// but its Validate must have been called once.
//
// Messages without a UUID get one. A message that cannot be written is an error that wraps
// stores.ErrInvalidOutput or stores.ErrTooLarge, and leaves the transaction as it was.
func NewPublisher(tx *sql.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	on := sqlstore.SenderFunc(func(ctx context.Context, s sqlstore.Statement) (int64, error) { return send(ctx, tx, s) })
	return producer.New[sqlstore.Sender]("sqlite", on, c, s.tables.Emit)
}
