package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	leanAlone     = "no inbox, 4 connections"
	leanInbox     = "inbox, 4 connections"
	leanBatches   = "batches, 4 connections"
	threeAlone    = "three statements, no inbox"
	threeBatches  = "three statements, batches"
	failingAlone  = "1 % failing, no inbox"
	failingShared = "1 % failing, batches"
	queuedBatches = "queued, batches"
	queuedFailing = "1 % failing, queued, batches"
	queuedAlone   = "queued, inbox, 4 connections"
	ownInbox      = "inbox, a connection each"
	ownBatches    = "batches, a connection each"
)

// batchConnections is how many batches of a consumer run at a time, with a connection each.
const batchConnections = 4

// handle is what a handler does in its transaction.
type handle func(context.Context, pgx.Tx, *message.Message) error

// readArticle reads by an index, from a table that handlers do not fill: a scan of theirs would
// cost more in the faster recipe, whose cells have more messages.
const readArticle = "SELECT price FROM article WHERE id = $1"

// articleOf returns the article that a message is about.
func articleOf(msg *message.Message) string { return msg.UUID[:2] }

// writeThrice is a handler that reads before it writes.
func writeThrice(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
	return writeAfter(ctx, tx, msg, readsOfThree)
}

const readsOfThree = 2

func writeAfter(ctx context.Context, tx pgx.Tx, msg *message.Message, reads int) error {
	for range reads {
		if err := tx.QueryRow(ctx, readArticle, articleOf(msg)).Scan(new(int64)); err != nil {
			return err
		}
	}
	return write(ctx, tx, msg)
}

var errMostly = errors.New("one in a hundred")

// writeMostly fails after its write, one time in a hundred.
func writeMostly() handle {
	var n atomic.Int64
	return func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		if err := write(ctx, tx, msg); err != nil {
			return err
		}
		if n.Add(1)%poisonOneIn == 0 {
			return errMostly
		}
		return nil
	}
}

// onConnections is a recipe's open of a handler on so many connections; 0: one for each
// worker. What fails is left to nobody.
func onConnections(db *database, connections int, open func(*pgxpool.Pool) (*handling, error)) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, workers int) (*handling, error) {
		if connections > 0 {
			workers = connections - spareConnections
		}
		pool, err := db.pool(ctx, workers)
		if err != nil {
			return nil, err
		}
		return open(pool)
	}
}

func poolWithout(h handle) func(*pgxpool.Pool) (*handling, error) {
	return func(pool *pgxpool.Pool) (*handling, error) {
		return &handling{handler: func(msg *message.Message) error {
			ctx := msg.Context()
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return h(ctx, tx, msg) })
			if errors.Is(err, errMostly) {
				return nil
			}
			return err
		}}, nil
	}
}

func poolWith(h handle, batches bool) func(*pgxpool.Pool) (*handling, error) {
	return poolHandling(postgres.Handler(h), batches)
}

// queueMostly queues what changes another number of rows than it is to, one time in a hundred.
func queueMostly() message.NoPublishHandlerFunc {
	var n atomic.Int64
	return postgres.Queued(func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
		rows := int64(1)
		if n.Add(1)%poisonOneIn == 0 {
			rows = 2
		}
		q.ExecRows(rows, writeEffect, msg.UUID, label)
		return nil
	})
}

func poolHandling(handler message.NoPublishHandlerFunc, batches bool) func(*pgxpool.Pool) (*handling, error) {
	return func(pool *pgxpool.Pool) (*handling, error) {
		store, err := postgres.New(pool, postgres.Config{})
		if err != nil {
			return nil, err
		}
		c := middleware.InboxConfig{Service: serviceName, Handler: handlerName, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))} //nolint:sloglint // as in programs, which write lines
		if batches {
			c.BatchByHandler = map[string]middleware.BatchConfig{handlerName: {}}
		}
		inbox, err := middleware.NewInbox(store, c)
		if err != nil {
			return nil, err
		}
		return &handling{
			handler:    handler,
			middleware: []message.HandlerMiddleware{inbox.Middleware},
			close:      store.Close,
		}, nil
	}
}

func batchRecipes(db *database) []recipe {
	lean := func(connections int, open func(*pgxpool.Pool) (*handling, error)) func(context.Context, int) (*handling, error) {
		return onConnections(db, connections, open)
	}
	const n = batchConnections
	return []recipe{
		{name: leanAlone, open: lean(n, poolWithout(write))},
		{name: leanInbox, against: leanAlone, open: lean(n, poolWith(write, false))},
		{name: leanBatches, against: leanAlone, open: lean(n, poolWith(write, true))},
		{name: threeAlone, open: lean(n, poolWithout(writeThrice))},
		{name: threeBatches, against: threeAlone, open: lean(n, poolWith(writeThrice, true))},
		{name: failingAlone, open: lean(n, poolWithout(writeMostly()))},
		{name: failingShared, against: failingAlone, open: lean(n, poolWith(writeMostly(), true))},
		{name: queuedAlone, against: leanAlone, open: lean(n, poolHandling(postgres.Queued(queue), false))},
		{name: queuedBatches, against: leanAlone, open: lean(n, poolHandling(postgres.Queued(queue), true))},
		{name: queuedFailing, against: failingAlone, open: lean(n, poolHandling(queueMostly(), true))},
		{name: byHandBatches, against: leanAlone, open: lean(n, poolByHand(eachByHand(0)))},
		{name: byHandThree, against: threeAlone, open: lean(n, poolByHand(eachByHand(readsOfThree)))},
		{name: byHandQueued, against: leanAlone, open: lean(n, poolByHand(queueAllByHand))},
		{name: ownInbox, open: lean(0, poolWith(write, false))},
		{name: ownBatches, against: ownInbox, open: lean(0, poolWith(write, true))},
	}
}

// batches measures what messages cost that share transactions.
func batches(_ context.Context, s *site, o options) (*group, error) {
	return &group{
		title: "PostgreSQL: messages that share transactions",
		about: fmt.Sprintf("All are called directly, without a router. Workers are messages in flight. With %d connections each, "+
			"which is how many batches run at a time, a recipe is compared with the same handler without an inbox. "+
			"Those with a connection for each message compare batches with one transaction for each. "+
			"A message that fails without an inbox is not recorded; in the inbox it is, with its content.", batchConnections),
		workers: batchWorkers(o), recipes: batchRecipes(s.used), stayOpen: true,
		server: s.server, deliveries: newMessages, reset: s.direct.truncate, close: s.close,
	}, nil
}

// batchWorkers adds numbers of messages in flight at which batches pay.
func batchWorkers(o options) []int { return append(slices.Clone(o.workers), 128, 256) }
