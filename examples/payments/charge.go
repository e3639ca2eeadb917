package main

// The service. This file is what you would write; the rest of the folder is the rig that
// feeds it, hurts it, and plays the provider and the operator.

import (
	"context"
	"database/sql"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
	"github.com/millpond-go/millpond/stores/sqlite"
)

// schema is the service's own: its books. They have no unique key on purpose, so that an order
// that is booked twice shows.
const schema = `CREATE TABLE payment (order_id TEXT NOT NULL, cents BIGINT NOT NULL, receipt TEXT NOT NULL);`

// The times are short, because nobody wants to watch a program wait. The provider remembers a
// key for keyMemory, so no attempt may end later than that.
const (
	handlerTimeout = time.Second
	leaseTTL       = time.Second
	keyLifetime    = keyMemory - 2*time.Second
)

// order is what the shop sends.
type order struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// serve consumes orders until ctx ends or there are none any more: the inbox on a router, and
// beside it the worker that makes the later attempts.
func serve(ctx context.Context, store middleware.Store, orders message.Subscriber, provider *client, hook middleware.Hook, logger *slog.Logger) error {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service:        "shop",
		Keys:           keys.First(keys.Payload("order_id")), // where the shop has put the id
		HandlerTimeout: handlerTimeout,
		LeaseByHandler: map[string]middleware.LeaseConfig{
			"charge": {TTL: leaseTTL, AfterCrash: middleware.CrashRetry, KeyLifetime: keyLifetime},
		},
		Retry: middleware.RetryPolicy{
			MaxAttempts: 100, // the key's lifetime ends it before
			Backoff:     middleware.BackoffConfig{Min: 50 * time.Millisecond, Max: 500 * time.Millisecond},
		},
		Hooks:  []middleware.Hook{hook},
		Logger: logger,
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(inbox.Middleware)
	router.AddConsumerHandler("charge", topic, orders, sqlite.Lease(provider.pay, book))

	retries, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{
		Handlers:     router.Handlers(),
		PollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	running, end := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error { return retries.Run(running) })
	group.Go(func() error {
		defer end()
		return router.Run(ctx)
	})
	return group.Wait()
}

// pay is the effect: a request that carries the same key on every attempt, so that the
// provider can tell. No transaction is open meanwhile.
func (c *client) pay(ctx context.Context, msg *message.Message) (receipt string, err error) {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return "", middleware.Permanent(err)
	}
	key, _ := middleware.IdempotencyKey(ctx)
	return c.charge(ctx, key, o)
}

// book is what is written when it has happened, in the transaction that completes the message.
// Whoever has lost the lease meanwhile books nothing.
func book(ctx context.Context, tx *sql.Tx, msg *message.Message, receipt string) error {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, insertPayment, o.OrderID, o.Cents, receipt)
	return err
}

const insertPayment = `INSERT INTO payment (order_id, cents, receipt) VALUES (?, ?, ?)`
