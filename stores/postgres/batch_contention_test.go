package postgres_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// arrivals counts the claims that are asked for.
type arrivals struct {
	n   atomic.Int32
	all chan struct{}
}

const (
	places = 4  // of batches, which the first deliveries take for themselves
	whole  = 32 // members
)

func (a *arrivals) ClaimStart(ctx context.Context, _ stores.Claim) context.Context {
	if a.n.Add(1) == places+whole {
		close(a.all)
	}
	return ctx
}

// When nobody knows whether a batch was committed, each of its messages is looked up.
func TestTheCommitOfABatchIsUnknown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose func(*pgproxy.Proxy, int)
		runs int32 // of each member's handler
	}{
		"reply lost":   {(*pgproxy.Proxy).LoseCommitReply, 1},
		"request lost": {(*pgproxy.Proxy).LoseCommitRequest, 2},
	} {
		for kind, as := range map[string]writing{"own statements": writesItself, "queued": handsOver} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				for range 10 { // a delivery that asked for its claim may not be waiting yet
					if unknownBatch(t, as, test.lose, test.runs) {
						return
					}
				}
				t.Error("no batch had all deliveries")
			})
		}
	}
}

// writing makes a handler of run, which calls write for its effect.
type writing func(run func(msg *message.Message, write func() error) error) message.NoPublishHandlerFunc

func writesItself(run func(msg *message.Message, write func() error) error) message.NoPublishHandlerFunc {
	return postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
		return run(msg, func() error { return effect(msg, tx) })
	})
}

func handsOver(run func(msg *message.Message, write func() error) error) message.NoPublishHandlerFunc {
	return postgres.Queued(func(_ context.Context, q *postgres.Queue, msg *message.Message) error {
		return run(msg, func() error { q.ExecRows(1, insertEffect, msg.UUID); return nil })
	})
}

// unknownBatch runs a batch whose commit is unknown. It reports false, and has checked less, if a
// delivery came too late to be a member.
func unknownBatch(t *testing.T, as writing, lose func(*pgproxy.Proxy, int), want int32) bool {
	proxy, err := pgproxy.Start(testenv.VolatilePostgres(t).NewDatabase(t))
	require.NoError(t, err)
	defer proxy.Close()
	all := &arrivals{all: make(chan struct{})}
	s := newSharingOn(t, openStore(t, pgtest.WithParameters(t, proxy.URL(), "pool_max_conns", "30")), func(c *middleware.InboxConfig) {
		c.Hooks = append(c.Hooks, all)
		c.BatchByHandler[batchtest.Handler] = middleware.BatchConfig{From: 1, Time: 5 * time.Second}
	})
	runs := deliverBehindAlone(t, s, all, as, func() { lose(proxy, 1) })
	s.Once(t, places+whole, batchtest.None)
	batches, sum := s.Ended()
	if sum.Kept < whole || batches > 1 {
		t.Logf("%d batches of %d messages", batches, sum.Kept)
		return false
	}
	require.Equal(t, whole, sum.Kept)
	require.ErrorIs(t, sum.Lost, stores.ErrCommitUnknown)
	for id, n := range runs {
		if n != want {
			t.Errorf("%s ran %d times, want %d", id, n, want)
		}
	}
	size, _ := s.Batches()[batchtest.Handler]
	require.Equal(t, whole/2, size.Size)
	require.Equal(t, stores.ErrCommitUnknown.Error(), size.Why, "it may be shown to anybody")
	return true
}

// deliverBehindAlone delivers messages whose handlers run alone until the claims of the others are
// asked for, and calls begin in the first handler of these. It returns how often each of these ran.
func deliverBehindAlone(t *testing.T, s *sharing, all *arrivals, as writing, begin func()) map[string]int32 {
	var (
		ran   atomic.Int32
		alone = make(chan struct{})
		over  sync.WaitGroup // of those that are alone
		mu    sync.Mutex
		runs  = make(map[string]int32)
	)
	over.Add(places)
	handle := as(func(msg *message.Message, write func() error) error {
		n := ran.Add(1)
		switch {
		case n <= places:
			alone <- struct{}{}
			<-all.all
			return write()
		case n == places+1:
			over.Wait()
			begin()
		}
		mu.Lock()
		runs[msg.UUID]++
		mu.Unlock()
		return write()
	})
	wrapped := s.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handle(msg) })
	var deliveries sync.WaitGroup
	for i := range places + whole {
		deliveries.Go(func() {
			id := batchtest.ID(i)
			if _, err := wrapped(message.NewMessage(id, nil)); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			if i < places {
				over.Done()
			}
		})
		if i < places {
			<-alone
		}
	}
	deliveries.Wait()
	return runs
}

// Batches that meet on the same rows deadlock, and come to an end all the same.
func TestBatchesThatDeadlockComeToAnEnd(t *testing.T) {
	t.Parallel()
	address := pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "30", "deadlock_timeout", "50ms")
	s := newSharingOn(t, openStore(t, address), batchtest.Redelivers)
	pool := s.store.Pool()
	_, err := pool.Exec(t.Context(), "CREATE TABLE hot (id int PRIMARY KEY, n int NOT NULL)")
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "INSERT INTO hot SELECT id, 0 FROM generate_series(0, $1 - 1) AS id", batchtest.HotRows)
	require.NoError(t, err)
	batchtest.Deadlocks(t, s.Inbox, batchtest.Meeting{
		Handler: handlers.Meets(func(ctx context.Context, tx pgx.Tx, row int) error {
			_, err := tx.Exec(ctx, "UPDATE hot SET n = n + 1 WHERE id = $1", row)
			return err
		}),
		Deadlock: func(err error) bool {
			pg, ok := errors.AsType[*pgconn.PgError](err)
			return ok && pg.Code == "40P01"
		},
		Sum: func() (n int, err error) {
			return n, pool.QueryRow(t.Context(), "SELECT sum(n) FROM hot").Scan(&n)
		},
	})
}
