package postgres_test

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// The inbox on a router and a pool that a program has already.
func ExampleNew() {
	addInbox := func(ctx context.Context, pool *pgxpool.Pool, router *message.Router, subscriber message.Subscriber) error {
		store, err := postgres.New(pool, postgres.Config{})
		if err != nil {
			return err
		}
		if err := store.Validate(ctx); err != nil { // the tables are there: see Migrate
			return err
		}
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "billing"})
		if err != nil {
			return err
		}
		router.AddMiddleware(inbox.Middleware)
		router.AddConsumerHandler("mark-paid", "payments", subscriber,
			postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
				_, err := tx.Exec(ctx, "UPDATE invoice SET paid = true WHERE id = $1", string(msg.Payload))
				return err
			}))
		return nil
	}
	_ = addInbox
}

// A handler that keeps Watermill's signature finds the transaction in the context.
func ExampleTxFromContext() {
	markPaid := func(msg *message.Message) error {
		tx, ok := postgres.TxFromContext(msg.Context())
		if !ok {
			return fmt.Errorf("no inbox around this handler")
		}
		_, err := tx.Exec(msg.Context(), "UPDATE invoice SET paid = true WHERE id = $1", string(msg.Payload))
		return err
	}
	_ = markPaid
}

// Deployments migrate explicitly, or print the SQL for their own tool.
func ExampleStore_Migrate() {
	migrate := func(ctx context.Context, store *postgres.Store) error {
		applied, err := store.Migrate(ctx)
		for _, m := range applied {
			fmt.Printf("applied %04d_%s\n", m.Version, m.Name)
		}
		return err
	}
	_ = migrate
}
