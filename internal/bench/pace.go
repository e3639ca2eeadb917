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
	"golang.org/x/sync/errgroup"

	"github.com/millpond-go/millpond/middleware/outbox"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Names of recipes.
const (
	committedToPublished = "commit to publish"
	committedKeyed       = "commit to publish, 5,000 order keys"
	committedWoken       = "commit to publish elsewhere, woken"
	committedPolled      = "commit to publish elsewhere, polled"
)

const (
	commitsASecond = 2000
	pacedLonger    = 10 // cells than others
)

// elsewhere is how a relay finds commits that is not in their process. It has connections of
// its own.
type elsewhere string

const (
	here   elsewhere = "" // it is in their process, and poked
	woken  elsewhere = "woken"
	polled elsewhere = "polled"
)

// poke is what is told of commits.
func (e elsewhere) poke(store *postgres.Store, relay *outbox.Relay) func(...int64) {
	switch e {
	case woken:
		return outbox.NewWaker(store, outbox.WakerConfig{}).Poke
	case polled:
		return func(...int64) {}
	case here:
	}
	return relay.Poke
}

// paced makes a job of transactions that begin at a steady pace, each with an output, and of a
// relay. Latencies are from the end of a commit to the call of the publisher.
func paced(db *database, keys int, where elsewhere) func(context.Context, int, int) (*job, error) {
	return func(ctx context.Context, workers, n int) (*job, error) {
		if err := db.emptyOutbox(ctx); err != nil {
			return nil, err
		}
		store, err := db.store(ctx, workers+relayConnections)
		if err != nil {
			return nil, err
		}
		p, end, err := toMemory(ctx)
		if err != nil {
			return nil, err
		}
		seen := &clocked{taken: newTaken(p, n), at: make([]atomic.Int64, n), committed: make([]atomic.Int64, n), began: time.Now()}
		relaying, err := db.store(ctx, relayConnections)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		of, config := relaying, outbox.Config{Publishers: map[string]message.Publisher{"": seen}}
		switch where {
		case here:
			of = store
		case woken:
			config.WakeInterval = wakeInterval
		case polled:
		}
		relay, err := outbox.New(of, config)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		poke := where.poke(store, relay)
		return &job{
			run: func() (time.Duration, []time.Duration, error) {
				var running background
				running.start(ctx, relay.Run)
				start := time.Now()
				err := commitSteadily(ctx, workers, n, func(i int) error { return seen.commit(ctx, store, i, keys, poke) })
				if err == nil {
					err = seen.wait(ctx)
				}
				return time.Since(start), seen.latencies(), errors.Join(err, running.end())
			},
			close: func() error { return errors.Join(db.allRelayed(ctx), relaying.Close(), store.Close(), end()) },
		}, nil
	}
}

// commitSteadily calls commit for 0 to n-1 at the pace, whatever the ones before take, as long
// as there are workers.
func commitSteadily(ctx context.Context, workers, n int, commit func(i int) error) error {
	var next atomic.Int64
	begun := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil {
					return ctx.Err()
				}
				<-time.After(time.Until(begun.Add(time.Duration(i) * time.Second / commitsASecond)))
				if err := commit(i); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// clocked notes when messages, whose ids are their numbers, were committed and published.
type clocked struct {
	*taken

	began         time.Time
	at, committed []atomic.Int64 // since then
}

func (c *clocked) commit(ctx context.Context, store *postgres.Store, i, keys int, poke func(...int64)) error {
	config := stores.PublisherConfig{Last: true}
	if keys > 0 {
		config.OrderKey = func(stores.Output) []byte { return []byte(strconv.Itoa(i % keys)) }
	}
	err := pgx.BeginFunc(ctx, store.Pool(), func(tx pgx.Tx) error {
		return postgres.NewPublisher(tx, store, config).Publish(outputTopic, message.NewMessage(strconv.Itoa(i), payload("output-0")))
	})
	c.committed[i].Store(int64(time.Since(c.began)))
	poke()
	return err
}

func (c *clocked) PublishEach(ctx context.Context, topic string, messages ...*message.Message) []error {
	now := int64(time.Since(c.began))
	for _, msg := range messages {
		if i, err := strconv.Atoi(msg.UUID); err == nil && i < len(c.at) {
			c.at[i].Store(now)
		}
	}
	return c.taken.PublishEach(ctx, topic, messages...)
}

// latencies are at least a nanosecond: a relay may see a commit before who made it.
func (c *clocked) latencies() []time.Duration {
	latencies := make([]time.Duration, len(c.at))
	for i := range c.at {
		latencies[i] = max(time.Duration(c.at[i].Load()-c.committed[i].Load()), 1)
	}
	return latencies
}

// promptness measures how soon after a commit its output is published.
func promptness(_ context.Context, s *site, _ options) (*group, error) {
	return &group{
		title: "PostgreSQL: from commit to publish",
		about: fmt.Sprintf("Transactions with nothing but an output of about 490 bytes begin %d times a second, on up to %d connections, and poke the relay "+
			"of their process, which publishes to a broker in memory. Elsewhere means that the relay has connections of its own, as in another process, "+
			"and is not poked, but woken by the database, or polls every 250 ms. p50 and p99 are from the end of a commit to the call of the publisher.", commitsASecond, goalWorkers),
		workers: []int{goalWorkers}, longer: pacedLonger, least: commitsASecond,
		recipes: []recipe{
			{name: committedToPublished, job: paced(s.used, 0, here)},
			{name: committedKeyed, job: paced(s.used, manyKeys, here)},
			{name: committedWoken, job: paced(s.used, 0, woken)},
			{name: committedPolled, job: paced(s.used, 0, polled)},
		},
		server: s.server, close: s.close,
	}, nil
}
