package main

// The service. This file is what you would write; the rest of the folder feeds it,
// watches it and plays its operator.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/middleware/keys"
)

// schema is the service's own. The charges have no unique key on purpose, so that an
// order that is charged twice shows.
const schema = `
CREATE TABLE account (name TEXT PRIMARY KEY, balance BIGINT NOT NULL, version BIGINT NOT NULL);
CREATE TABLE charge  (order_id TEXT NOT NULL, account TEXT NOT NULL, cents BIGINT NOT NULL);`

// maxAttempts is low and the backoff short, because nobody wants to watch a program
// wait. The defaults are 10 attempts within a day, 1 s to 10 min apart.
const maxAttempts = 4

// serve consumes orders until ctx ends: the inbox on a router, and beside it the worker
// that makes the later attempts of orders whose payment has failed.
func serve(ctx context.Context, store middleware.Store, orders message.Subscriber,
	charge message.NoPublishHandlerFunc, hook middleware.Hook, logger *slog.Logger,
) error {
	inbox, err := middleware.NewInbox(store, middleware.InboxConfig{
		Service: "orders",
		Keys:    keys.First(keys.Payload("order_id")), // where the shop has put the id
		Retry: middleware.RetryPolicy{
			MaxAttempts: maxAttempts,
			Backoff:     middleware.BackoffConfig{Min: 100 * time.Millisecond, Max: time.Second},
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
	router.AddConsumerHandler("charge", topic, orders, charge)

	worker, err := middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{
		Handlers:     router.Handlers(),
		PollInterval: 100 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return router.Run(ctx) })
	group.Go(func() error { return worker.Run(ctx) })
	return group.Wait()
}

// order is what the shop sends.
type order struct {
	OrderID     string `json:"order_id"`
	Account     string `json:"account"`
	Cents       int64  `json:"cents"`
	Card        string `json:"card"`
	Instalments int64  `json:"instalments,omitempty"`
}

// payments charges orders to accounts.
type payments struct {
	provider    *provider
	instalments func(order) int64 // how many: what the fix changes
	accounts    sync.Map          // name → version, as it was read last
}

// The first version of the service takes the number of instalments as it comes; orders
// on invoice come without one. The second knows that.
func instalmentsAsSent(o order) int64   { return o.Instalments }
func instalmentsAtLeast1(o order) int64 { return max(o.Instalments, 1) }

// charge is the handler. What it writes through tx is committed together with the proof
// that this order is done, or not at all: every error rolls it back, and says by its
// kind what comes next.
func (p *payments) charge(ctx context.Context, tx tx, msg *message.Message) error {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return middleware.Permanent(fmt.Errorf("not an order: %w", err))
	}
	// A question only, which may be asked again; the money is in our own tables.
	err := p.provider.authorise(ctx, o)
	if errors.Is(err, errDeclined) {
		return middleware.Permanent(err)
	}
	if err != nil {
		return err // the provider is away: the next attempt may find it
	}
	cents := o.Cents / p.instalments(o)
	if err := p.debit(ctx, tx, o.Account, cents); err != nil {
		return err
	}
	_, err = tx.exec(ctx, `INSERT INTO charge (order_id, account, cents) VALUES ($1, $2, $3)`, o.OrderID, o.Account, cents)
	return err
}

// debit takes money from an account, unless the account has changed since it was read.
func (p *payments) debit(ctx context.Context, tx tx, account string, cents int64) error {
	version, known := p.accounts.Load(account)
	if !known {
		var read int64
		if err := tx.read(ctx, &read, `SELECT version FROM account WHERE name = $1`, account); err != nil {
			return err
		}
		version, _ = p.accounts.LoadOrStore(account, read)
	}
	changed, err := tx.exec(ctx, `UPDATE account SET balance = balance - $1, version = version + 1 WHERE name = $2 AND version = $3`,
		cents, account, version)
	if err == nil && changed == 0 {
		p.accounts.CompareAndDelete(account, version)
		return middleware.Contention(fmt.Errorf("account %s has changed since it was read", account))
	}
	return err
}
