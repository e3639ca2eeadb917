package main

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Names of recipes that share transactions without millpond: what its wire shape could reach.
const (
	byHandBatches = "by hand, batches"
	byHandQueued  = "by hand, queued, batches"
	byHandThree   = "by hand, three statements, batches"
)

// batchMembers is how many messages share a transaction by hand.
const batchMembers = 32

// sharing is a message that waits for a transaction.
type sharing struct {
	msg  *message.Message
	done chan error
}

// poolByHand shares transactions by hand: one statement claims for all, and run is what the handlers
// then do, COMMIT included.
func poolByHand(run func(context.Context, pgx.Tx, []sharing) error) func(*pgxpool.Pool) (*handling, error) {
	return func(pool *pgxpool.Pool) (*handling, error) {
		waiting := make(chan sharing, 8*batchMembers) // more than are in flight
		for range batchConnections {
			go func() {
				for first := range waiting {
					group := withWaiting(first, waiting)
					err := shareByHand(context.Background(), pool, group, run)
					for _, s := range group {
						s.done <- err
					}
				}
			}()
		}
		return &handling{
			handler: func(msg *message.Message) error {
				s := sharing{msg, make(chan error, 1)}
				waiting <- s
				return <-s.done
			},
			close: func() error { close(waiting); return nil },
		}, nil
	}
}

// withWaiting returns a message and those that wait with it.
func withWaiting(first sharing, waiting <-chan sharing) []sharing {
	group := append(make([]sharing, 0, batchMembers), first)
	for len(group) < batchMembers {
		select {
		case next, open := <-waiting:
			if !open {
				return group
			}
			group = append(group, next)
		default:
			return group
		}
	}
	return group
}

const claimAllByHand = "INSERT INTO processed (consumer, message_id) SELECT $1, unnest($2::text[]) ON CONFLICT DO NOTHING RETURNING message_id"

func shareByHand(ctx context.Context, pool *pgxpool.Pool, group []sharing, run func(context.Context, pgx.Tx, []sharing) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	ids := make([]string, len(group))
	for i, s := range group {
		ids[i] = s.msg.UUID
	}
	var batch pgx.Batch
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(claimAllByHand, consumerName, ids)
	results := conn.SendBatch(ctx, &batch)
	if _, err := results.Exec(); err != nil {
		return errors.Join(err, results.Close())
	}
	tag, err := results.Exec()
	if err := errors.Join(err, results.Close()); err != nil {
		return err
	}
	if int(tag.RowsAffected()) != len(group) {
		return errors.New("a message came twice")
	}
	return run(ctx, results.Tx(), group)
}

// queueAllByHand sends the statements of all and COMMIT in one round trip.
func queueAllByHand(ctx context.Context, tx pgx.Tx, group []sharing) error {
	var batch pgx.Batch
	for _, s := range group {
		batch.Queue(writeEffect, s.msg.UUID, label)
	}
	batch.Queue("commit")
	return tx.Conn().SendBatch(ctx, &batch).Close()
}

// eachByHand runs one handler after the other, with a savepoint that is sent with the first statement
// of each.
func eachByHand(reads int) func(context.Context, pgx.Tx, []sharing) error {
	return func(ctx context.Context, tx pgx.Tx, group []sharing) error {
		for _, s := range group {
			var first pgx.Batch
			first.Queue("SAVEPOINT member")
			if reads == 0 {
				first.Queue(writeEffect, s.msg.UUID, label)
			} else {
				first.Queue(readArticle, articleOf(s.msg))
			}
			if err := tx.SendBatch(ctx, &first).Close(); err != nil {
				return err
			}
			if reads == 0 {
				continue
			}
			if err := writeAfter(ctx, tx, s.msg, reads-1); err != nil {
				return err
			}
		}
		return tx.Commit(ctx)
	}
}
