package sqldb_test

import (
	"context"
	"database/sql"
	"log"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres/sqldb"
)

func ExampleNew() {
	db, err := sqldb.OpenDB("postgres://billing@127.0.0.1:5432/billing")
	if err != nil {
		log.Fatal(err)
	}
	store, err := sqldb.New(db, sqldb.Config{})
	if err != nil {
		log.Fatal(err)
	}
	_ = store
	// db is the program's, for whatever else it does. It closes the store first.
}

// What the handler writes is committed with the claim, or not at all.
func ExampleHandler() {
	h := sqldb.Handler(func(ctx context.Context, tx *sql.Tx, msg *message.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO invoice (order_id) VALUES ($1)", string(msg.Payload))
		return err // millpond commits, or rolls back
	})
	_ = h // router.AddConsumerHandler("invoices", "orders", subscriber, h)
}

func ExampleTxFromContext() {
	_ = func(msg *message.Message) error {
		tx, ok := sqldb.TxFromContext(msg.Context())
		if !ok {
			return stores.ErrNoTx // there is no inbox around the handler
		}
		_, err := tx.ExecContext(msg.Context(), "INSERT INTO invoice (order_id) VALUES ($1)", string(msg.Payload))
		return err
	}
}
