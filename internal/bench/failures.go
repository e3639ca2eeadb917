package main

import (
	"context"
	"fmt"
	"time"

	"github.com/millpond-go/millpond/middleware"
)

// Names of recipes.
const (
	retryWorker     = "retry worker"
	retryCrowded    = "retry worker, others not due"
	retryTwo        = "two retry workers"
	withoutPoison   = "partitions, no poison"
	onePercent      = "partitions, 1 % poison"
	onePercentEager = "the same, retried without pause"
	failedAttempt   = "failed attempt, parked"
)

const poisonOneIn = 100

func failureRecipes(db *database) []recipe {
	eager := middleware.RetryPolicy{Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond}}
	return []recipe{
		{name: retryWorker, job: retry(db.truncate, db)},
		{name: retryTwo, against: retryWorker, job: retry(db.truncate, db, db.twin())},
		{name: failedAttempt, routed: true, open: alwaysFailing(db)},
		{name: withoutPoison, job: partitions(db, 0, middleware.RetryPolicy{})},
		{name: onePercent, against: withoutPoison, job: partitions(db, poisonOneIn, middleware.RetryPolicy{})},
		{name: onePercentEager, against: withoutPoison, job: partitions(db, poisonOneIn, eager)},
	}
}

// failures measures what messages cost whose handler has failed.
func failures(ctx context.Context, s *site, o options) (*group, error) {
	crowded, err := newDatabase(ctx, s.server)
	if err != nil {
		return nil, err
	}
	g := &group{
		title: "PostgreSQL: failures",
		about: fmt.Sprintf("Retry workers run parked messages, all of them due, with a handler that does nothing and a concurrency of %d; "+
			"with others not due there are %d more in the table, and each of two workers has connections of its own. "+
			"The clock runs from the start of the worker to the last commit, and each message is run once, or the bench fails.\n\n"+
			"Partitions are in order: each of %d delivers its next message when the last was settled, under a router, with a retry worker beside. "+
			"Poison comes on top of the messages that count, and fails after its write: the rate is that of the healthy ones. "+
			"With the default policy its second attempt comes a second after the first; retried without pause, all ten attempts fall into the time that is measured. "+
			"First and later deliveries are of a process on a subscriber that does not tell redeliveries apart, after one that has ended in order, or was killed; none fails. "+
			"After a kill they are counted before they run, as any of them may have been in flight. "+
			"A failed attempt has two transactions that write, its own that is rolled back and the one that records it.",
			goalWorkers, o.waiting, goalWorkers),
		workers: []int{goalWorkers}, recipes: failureRecipes(s.used),
		server: s.server, deliveries: newMessages, reset: s.direct.truncate,
		close: func() { crowded.close(); s.close() },
	}
	g.recipes = append(g.recipes,
		recipe{name: retryCrowded, against: retryWorker, job: retry(crowded.tidy, crowded)},
		recipe{name: laterOfProcess, job: startsOf(s.used, false, false)},
		recipe{name: firstOfProcess, against: laterOfProcess, job: startsOf(s.used, true, false)},
		recipe{name: firstAfterKill, against: laterOfProcess, job: startsOf(s.used, true, true)})
	if g.trips, err = countTrips(ctx, s.direct, failureRecipes, newMessages); err != nil {
		crowded.close()
		return nil, err
	}
	o.progress.Printf("%s: parking %d messages", g.title, o.waiting)
	if err := fill(ctx, crowded, o.waiting); err != nil {
		crowded.close()
		return nil, err
	}
	return g, nil
}

func fill(ctx context.Context, db *database, n int) error {
	store, err := db.store(ctx, 1)
	if err != nil {
		return err
	}
	return db.crowd(ctx, store, n)
}
