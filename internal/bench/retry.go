package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// retried runs a job's messages in retry workers and checks that each ran once.
type retried struct {
	runs    []atomic.Int32 // of the handler, by message
	workers []*middleware.RetryWorker
	stores  []stores.Store
	running background
}

// retry makes a job of messages that are parked and due, and of a retry worker with an
// empty handler for each database: several are the same one. Clean empties it of what
// was completed before.
func retry(clean func(context.Context) error, dbs ...*database) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, workers, n int) (*job, error) {
		if err := clean(ctx); err != nil {
			return nil, err
		}
		var all []stores.Store
		for _, db := range dbs {
			store, err := db.store(ctx, workers)
			if err != nil {
				return nil, err
			}
			all = append(all, store)
		}
		r := &retried{runs: make([]atomic.Int32, n), stores: all}
		return r.job(ctx, workers, postgres.Handler(func(_ context.Context, _ pgx.Tx, msg *message.Message) error { return r.note(msg) }))
	}
}

// job parks the messages and readies a worker on each store.
func (r *retried) job(ctx context.Context, concurrency int, handler message.NoPublishHandlerFunc) (*job, error) {
	if err := park(ctx, r.stores[0], len(r.runs), 0); err != nil {
		return nil, err
	}
	for _, store := range r.stores {
		inbox, err := middleware.NewInbox(store, middleware.InboxConfig{Service: serviceName})
		if err != nil {
			return nil, err
		}
		worker, err := newRetryWorker(inbox, handler, concurrency)
		if err != nil {
			return nil, err
		}
		r.workers = append(r.workers, worker)
	}
	run := func() (time.Duration, []time.Duration, error) {
		start := time.Now()
		for _, worker := range r.workers {
			r.running.start(ctx, worker.Run)
		}
		err := r.wait(ctx)
		return time.Since(start), nil, err
	}
	return &job{run: run, close: func() error { return r.close(ctx) }}, nil
}

func newRetryWorker(inbox *middleware.Inbox, handler message.NoPublishHandlerFunc, concurrency int) (*middleware.RetryWorker, error) {
	return middleware.NewRetryWorker(inbox, middleware.RetryWorkerConfig{
		Concurrency: concurrency,
		Handlers: map[string]message.HandlerFunc{
			handlerName: func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) },
		},
	})
}

// note counts a run of a message's handler.
func (r *retried) note(msg *message.Message) error {
	i, err := strconv.Atoi(msg.UUID)
	if err != nil || i >= len(r.runs) {
		return fmt.Errorf("not a message of this cell: %q", msg.UUID)
	}
	r.runs[i].Add(1)
	return nil
}

// wait waits until the workers have completed everything.
func (r *retried) wait(ctx context.Context) error {
	const (
		look    = time.Millisecond
		atMost  = time.Minute
		between = "%d of %d messages were completed after %v: %+v"
	)
	deadline := time.NewTimer(atMost)
	defer deadline.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		completed := 0
		for _, worker := range r.workers {
			completed += worker.Stats().Completed
		}
		if completed >= len(r.runs) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline.C:
			return fmt.Errorf(between, completed, len(r.runs), atMost, r.workers[0].Stats())
		}
	}
}

// close stops the workers and checks what they have done.
func (r *retried) close(ctx context.Context) error {
	err := errors.Join(r.running.end(), nothingDue(ctx, r.stores[0]))
	for i := range r.runs {
		if n := r.runs[i].Load(); n != 1 {
			err = errors.Join(err, fmt.Errorf("message %d was run %d times", i, n))
			break
		}
	}
	for _, store := range r.stores {
		err = errors.Join(err, store.Close())
	}
	return err
}

// background is what runs beside, until it is ended.
type background struct {
	stop  []context.CancelFunc
	ended []chan error
}

func (b *background) start(ctx context.Context, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	b.stop, b.ended = append(b.stop, cancel), append(b.ended, ended)
}

func (b *background) end() (err error) {
	for i, stop := range b.stop {
		stop()
		err = errors.Join(err, <-b.ended[i])
	}
	return err
}
