package sqldb

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/internal/producer"
	"github.com/millpond-go/millpond/internal/sqlstore"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/internal/tables"
)

// NewPublisher returns a publisher into one transaction, the caller's or a handler's, like
// postgres.NewPublisher.
func NewPublisher(tx *sql.Tx, s *Store, c stores.PublisherConfig) message.Publisher {
	switch {
	case tx == nil:
		return producer.Missing("sqldb", "transaction")
	case s == nil:
		return producer.Missing("sqldb", "store")
	}
	on := sqlstore.SenderFunc(func(ctx context.Context, s tables.Statement) (int64, error) { return send(ctx, tx, s) })
	return producer.New[tables.Querier]("sqldb", on, c, s.tables.Emit)
}
