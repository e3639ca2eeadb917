package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// poisonField marks a message whose handler always fails.
const poisonField = "poison"

var errPoison = errors.New("payment gateway: 422 Unprocessable Entity")

// writeUnlessPoison fails late, when its write is done.
func writeUnlessPoison(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
	if err := write(ctx, tx, msg); err != nil {
		return err
	}
	if msg.Metadata.Get(poisonField) != "" {
		return errPoison
	}
	return nil
}

// poisonOne poisons every so many-th delivery, the first one of them.
func (l load) poisonOne(in int) {
	for i := 0; i < len(l.deliveries); i += in {
		l.deliveries[i].msg.Metadata[poisonField] = "yes"
	}
}

// failing is the inbox around a handler that may fail, with what it logs thrown away
// only after it was written.
func failing(db *database, policy middleware.RetryPolicy) func(context.Context, int) (*handling, *middleware.Inbox, error) {
	return func(ctx context.Context, workers int) (*handling, *middleware.Inbox, error) {
		store, err := db.store(ctx, 2*workers) // for the retry worker beside, too
		if err != nil {
			return nil, nil, err
		}
		log := slog.New(slog.NewTextHandler(io.Discard, nil)) //nolint:sloglint // to write the lines is part of the cost
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: serviceName, Retry: policy, Logger: log})
		if err != nil {
			return nil, nil, err
		}
		return &handling{
			handler:    postgres.Handler(writeUnlessPoison),
			middleware: []message.HandlerMiddleware{inbox.Middleware},
			close:      store.Close,
		}, inbox, nil
	}
}

// alwaysFailing is a recipe's open for messages all of which are poison.
func alwaysFailing(db *database) func(context.Context, int) (*handling, error) {
	open := failing(db, middleware.RetryPolicy{})
	return func(ctx context.Context, workers int) (*handling, error) {
		h, _, err := open(ctx, workers)
		if err == nil {
			h.middleware = append([]message.HandlerMiddleware{poisoned}, h.middleware...)
		}
		return h, err
	}
}

// poisoned poisons what passes.
func poisoned(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		msg.Metadata[poisonField] = "yes"
		return next(msg)
	}
}

// partitions makes a job of ordered partitions, one for each worker: the next message of
// one is delivered when its last was settled. Each poison-th is poison, none if that is
// 0, and comes on top of the n messages that count. A retry worker runs beside.
func partitions(db *database, poison int, policy middleware.RetryPolicy) func(context.Context, int, int) (*job, error) {
	open := failing(db, policy)
	return func(ctx context.Context, workers, n int) (_ *job, err error) {
		if err := db.truncate(ctx); err != nil {
			return nil, err
		}
		h, inbox, err := open(ctx, workers)
		if err != nil {
			return nil, err
		}
		var beside background
		worker, err := newRetryWorker(inbox, h.handler, workers/2+1)
		if err != nil {
			return nil, errors.Join(err, h.end())
		}
		d, err := newRouted(ctx, h, workers)
		if err != nil {
			return nil, errors.Join(err, h.end())
		}
		beside.start(ctx, worker.Run)
		end := func() error { return errors.Join(d.close(), beside.end(), h.end()) }

		warmUp := 4 * workers
		if _, _, err := d.run(newMessages(&recipe{}, warmUp), warmUp); err != nil {
			return nil, errors.Join(err, end())
		}
		total := n
		if poison > 0 {
			total += (n + poison - 2) / (poison - 1)
		}
		l := newMessages(&recipe{}, total)
		if poison > 0 {
			l.poisonOne(poison)
		}
		return &job{
			run:   func() (time.Duration, []time.Duration, error) { return d.run(l, total) },
			close: func() error { return errors.Join(end(), db.holds(ctx, warmUp+n, total-n)) },
		}, nil
	}
}

// holds is an error if the database does not have so many effects and failures.
func (db *database) holds(ctx context.Context, effects, failures int) error {
	pool, err := db.pool(ctx, 1)
	if err != nil {
		return err
	}
	var gotEffects, gotFailures int
	err = pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM effect), (SELECT count(*) FROM millpond_failure)").Scan(&gotEffects, &gotFailures)
	if err == nil && (gotEffects != effects || gotFailures != failures) {
		err = fmt.Errorf("%d effects and %d failures are committed, want %d and %d", gotEffects, gotFailures, effects, failures)
	}
	return err
}
