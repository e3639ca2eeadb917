package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// A whole program but for its router and subscriber: the tables, the inbox, a handler that
// must not run twice, and the worker that runs failed messages again. README shows it.
func Example_shop() {
	run := func(ctx context.Context, databaseURL string, router *message.Router, subscriber message.Subscriber) error {
		store, err := postgres.Open(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer store.Close()
		_, err = store.Migrate(ctx) // creates millpond's tables, once; or run: millpond migrate up
		if err != nil {
			return err
		}
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: "shop"})
		if err != nil {
			return err
		}
		router.AddMiddleware(inbox.Middleware)
		router.AddConsumerHandler("stock", "orders", subscriber, postgres.Handler(
			func(ctx context.Context, tx pgx.Tx, msg *message.Message) error { // the claim commits with tx
				_, err := tx.Exec(ctx, "UPDATE stock SET pieces = pieces - 1 WHERE item = $1", string(msg.Payload))
				return err
			}))
		retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{Handlers: router.Handlers()})
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { defer stop(); return retries.Run(ctx) }) // runs failed messages again
		group.Go(func() error { defer stop(); return router.Run(ctx) })
		return errors.Join(group.Wait(), inbox.Close(context.WithoutCancel(ctx))) // Close: this process has not died
	}
	_ = run
}

// The inbox on a router and a pool that a program has already.
func ExampleNew() {
	addInbox := func(ctx context.Context, pool *pgxpool.Pool, router *message.Router) error {
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

// A handler that only writes: its statements ride with COMMIT, and the message takes two round
// trips.
func ExampleQueued() {
	markPaid := postgres.Queued(func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
		q.ExecRows(1, "UPDATE invoice SET paid = true WHERE id = $1 AND NOT paid", string(msg.Payload))
		q.Exec("INSERT INTO journal (invoice, entry) VALUES ($1, 'paid')", string(msg.Payload))
		return nil
	})
	_ = markPaid
}

// Messages of one handler that are in flight at the same time share transactions. The handler
// is the same as without.
func ExampleStore_BeginBatch() {
	addInbox := func(store *postgres.Store, router *message.Router) error {
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
			Service: "shop",
			BatchByHandler: map[string]middleware.BatchConfig{
				"stock": {}, // up to 32 messages in flight share a transaction
			},
		})
		if err != nil {
			return err
		}
		router.AddMiddleware(inbox.Middleware)
		return nil
	}
	_ = addInbox
}

// A payment happens outside of the database, and its receipt is written when the message is
// completed.
func ExampleLease() {
	type provider interface {
		Charge(ctx context.Context, idempotencyKey string, order []byte) (receipt string, err error)
	}
	addCharge := func(store *postgres.Store, router *message.Router, subscriber message.Subscriber, provider provider) error {
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
			Service: "billing",
			LeaseByHandler: map[string]middleware.LeaseConfig{
				"charge": {TTL: 30 * time.Second, AfterCrash: middleware.CrashRetry, KeyLifetime: 23 * time.Hour},
			},
		})
		if err != nil {
			return err
		}
		router.AddMiddleware(inbox.Middleware)
		router.AddConsumerHandler("charge", "orders", subscriber, postgres.Lease(
			func(ctx context.Context, msg *message.Message) (string, error) { // without a transaction
				key, _ := middleware.IdempotencyKey(ctx) // the same on every attempt
				return provider.Charge(ctx, key, msg.Payload)
			},
			func(ctx context.Context, tx pgx.Tx, msg *message.Message, receipt string) error { // the message is completed with tx
				_, err := tx.Exec(ctx, "INSERT INTO payment (order_id, receipt) VALUES ($1, $2)", msg.UUID, receipt)
				return err
			},
		))
		return nil
	}
	_ = addCharge
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
