package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names under which effects are counted once.
const (
	serviceName  = "bench"
	consumerName = serviceName + "/" + handlerName
)

// write is what every recipe's handler does, on every store.
const (
	writeEffect = "INSERT INTO effect (id, label) VALUES ($1, $2)"
	label       = "paid"
)

func write(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
	_, err := tx.Exec(ctx, writeEffect, msg.UUID, label)
	return err
}

// on makes a recipe's open of a handler on a pool.
func on(db *database, handler func(*pgxpool.Pool) message.NoPublishHandlerFunc) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, workers int) (*handling, error) {
		pool, err := db.pool(ctx, workers)
		if err != nil {
			return nil, err
		}
		return &handling{handler: handler(pool)}, nil
	}
}

// noInbox is the floor to compare with: BEGIN, write, COMMIT.
func noInbox(pool *pgxpool.Pool) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return write(ctx, tx, msg) })
	}
}

var errDuplicate = errors.New("duplicate")

// textbook notes the id in the handler's transaction: BEGIN, note, write, COMMIT.
func textbook(pool *pgxpool.Pool) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, "INSERT INTO processed (consumer, message_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
				consumerName, msg.UUID)
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return errDuplicate
			}
			return write(ctx, tx, msg)
		})
		if errors.Is(err, errDuplicate) {
			return nil
		}
		return err
	}
}

// claimByHand is the least that a claim can be: BEGIN and, in the same trip, the note of the id
// unless somebody else has its lock; write; COMMIT.
func claimByHand(pool *pgxpool.Pool) message.NoPublishHandlerFunc {
	return claimingByHand(pool, func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		if err := write(ctx, tx, msg); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
		return tx.Commit(ctx)
	})
}

// queuedByHand is claimByHand with write and COMMIT in one trip.
func queuedByHand(pool *pgxpool.Pool) message.NoPublishHandlerFunc {
	return claimingByHand(pool, func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		return queueAllByHand(ctx, tx, []sharing{{msg: msg}})
	})
}

// claimingByHand claims in the trip of BEGIN, and calls run if it has the claim.
func claimingByHand(pool *pgxpool.Pool, run func(context.Context, pgx.Tx, *message.Message) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		var batch pgx.Batch
		batch.BeginTx(pgx.TxOptions{})
		claimed := false
		batch.Queue(`INSERT INTO processed (consumer, message_id)
SELECT $1, $2 WHERE pg_try_advisory_xact_lock(hashtextextended($2, 0)) ON CONFLICT DO NOTHING`, consumerName, msg.UUID).
			Exec(func(tag pgconn.CommandTag) error {
				claimed = tag.RowsAffected() == 1
				return nil
			})
		results := conn.SendBatch(ctx, &batch)
		if err := results.Close(); err != nil {
			return err
		}
		if !claimed {
			return results.Tx().Rollback(ctx)
		}
		return run(ctx, results.Tx(), msg)
	}
}

// queue is write for a handler that hands its statement over.
func queue(_ context.Context, q *postgres.Queue, msg *message.Message) error {
	q.Exec(writeEffect, msg.UUID, label)
	return nil
}

// fiveStep stores the message first and walks it through its states: insert pending;
// BEGIN, processing, write, completed, COMMIT.
func fiveStep(pool *pgxpool.Pool) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		ctx := msg.Context()
		tag, err := pool.Exec(ctx, `INSERT INTO received (consumer, message_id, payload, status)
VALUES ($1, $2, $3, 'pending') ON CONFLICT DO NOTHING`, consumerName, msg.UUID, string(msg.Payload))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `UPDATE received SET status = 'processing'
WHERE consumer = $1 AND message_id = $2`, consumerName, msg.UUID); err != nil {
				return err
			}
			if err := write(ctx, tx, msg); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE received SET status = 'completed', result = $3, completed_at = now()
WHERE consumer = $1 AND message_id = $2`, consumerName, msg.UUID, label)
			return err
		})
	}
}

// millpond is the inbox around the same write. A recipe without a router names the
// handler itself.
func millpond(db *database, cacheSize int) func(context.Context, int) (*handling, error) {
	return millpondWith(db, cacheSize, postgres.Handler(write))
}

func millpondWith(db *database, cacheSize int, handler message.NoPublishHandlerFunc) func(context.Context, int) (*handling, error) {
	return func(ctx context.Context, workers int) (*handling, error) {
		store, err := db.store(ctx, workers)
		if err != nil {
			return nil, err
		}
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: serviceName, Handler: handlerName, CacheSize: cacheSize})
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
