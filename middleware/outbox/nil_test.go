package outbox_test

import (
	"database/sql"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/mysql"
	"github.com/millpond-go/millpond/stores/postgres"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// A producer that ignores the second result of TxFromContext, for example, is told.
func TestPublisherOfNothingSaysSo(t *testing.T) {
	t.Parallel()
	none := stores.PublisherConfig{}
	for name, publishers := range map[string]struct{ withoutTx, withoutStore message.Publisher }{
		"postgres": {postgres.NewPublisher(nil, &postgres.Store{}, none), postgres.NewPublisher(struct{ pgx.Tx }{}, nil, none)},
		"sqldb":    {sqldb.NewPublisher(nil, &sqldb.Store{}, none), sqldb.NewPublisher(&sql.Tx{}, nil, none)},
		"mysql":    {mysql.NewPublisher(nil, &mysql.Store{}, none), mysql.NewPublisher(&sql.Tx{}, nil, none)},
		"sqlite":   {sqlite.NewPublisher(nil, &sqlite.Store{}, none), sqlite.NewPublisher(&sql.Tx{}, nil, none)},
	} {
		for what, publisher := range map[string]message.Publisher{"transaction": publishers.withoutTx, "store": publishers.withoutStore} {
			want := name + ": nothing can be published: NewPublisher was given nil as the " + what
			if err := publisher.Publish("orders", message.NewMessage("1", nil)); err == nil || err.Error() != want {
				t.Errorf("without a %s: %v, want %s", what, err, want)
			}
		}
	}
}
