package postgres_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/dbproxy"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Requests of COMMIT and their replies are lost, and connections in the middle of batches, while
// handlers fail. Each message is delivered until it is acked.
func TestBatchesOnConnectionsThatAreLost(t *testing.T) {
	t.Parallel()
	proxy, err := pgproxy.Start(testenv.VolatilePostgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	s := newSharingOn(t, openStore(t, pgtest.WithParameters(t, proxy.URL(), "pool_max_conns", "8")), func(c *middleware.InboxConfig) {
		c.CacheSize, c.Hold.MaxPause = -1, 50*time.Millisecond
		c.Retry = middleware.RetryPolicy{MaxAttempts: 1000, Backoff: middleware.BackoffConfig{Min: time.Millisecond, Max: time.Millisecond}, Placement: stores.PlacementRedelivered}
	})
	proxy.SetRandomFaults(dbproxy.RandomFaults{Seed: 1, LoseCommitReply: 0.1, LoseCommitRequest: 0.1})
	var runs atomic.Int32
	handle := postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
		n := runs.Add(1)
		if n%70 == 0 {
			proxy.CutAll()
		}
		if err := effect(msg, tx); err != nil || n%11 != 0 {
			return err
		}
		return errRefused
	})
	const n, most = 150, 50
	acked := false
	for try := 0; try < most && !acked; try++ {
		acked = true
		for _, err := range s.deliver(t, n, handle) {
			acked = acked && err == nil
		}
	}
	require.True(t, acked)
	proxy.SetRandomFaults(dbproxy.RandomFaults{})
	s.once(t, n)
	batches, sum := s.ended()
	require.Error(t, sum.Lost)
	require.Positive(t, sum.Kept)
	t.Logf("%d runs, %d batches, %+v", runs.Load(), len(batches), sum)
}

// A member whose run has ended touches the connection no more, which serves others then.
func TestAMemberEndsOnce(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	ctx := t.Context()
	b := beginBatch(t, s, "first", "second")
	first := b.Members()[0]
	_, err := memberTx(t, first).Exec(ctx, insertEffect, "first")
	require.NoError(t, err)
	require.NoError(t, first.Keep(ctx))
	require.NoError(t, b.Commit(ctx))

	other := beginBatch(t, s, "other")
	_, err = memberTx(t, other.Members()[0]).Exec(ctx, insertEffect, "other")
	require.NoError(t, err)
	require.ErrorIs(t, first.Leave(ctx), stores.ErrTxClosed)
	require.ErrorIs(t, first.Keep(ctx), stores.ErrTxClosed)
	require.NoError(t, other.Members()[0].Keep(ctx))
	require.NoError(t, other.Commit(ctx))
	require.Equal(t, []string{"first", "other"}, committedKeys(t, s))
}
