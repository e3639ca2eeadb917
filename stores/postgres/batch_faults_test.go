package postgres_test

import (
	"context"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Requests of COMMIT and their replies are lost, and connections in the middle of batches, while
// handlers fail and each message comes twice. Each is delivered until it is acked.
func TestBatchesOnConnectionsThatAreLost(t *testing.T) {
	t.Parallel()
	proxy, err := pgproxy.Start(testenv.VolatilePostgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	s := newSharingOn(t, openStore(t, pgtest.WithParameters(t, proxy.URL(), "pool_max_conns", "8")), batchtest.Redelivers)
	batchtest.LostConnections(t, s.Inbox, proxy, postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error { return effect(msg, tx) }))
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

// A handler that asks for the connection itself, while the pool has none to spare, gets none. Its
// member must run again alone, and the other one is committed.
func TestAMemberWithoutASpareConnection(t *testing.T) {
	t.Parallel()
	s := openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1"))
	b := beginBatch(t, s, "asks", "goes on")
	asks, goesOn := b.Members()[0], b.Members()[1]
	tx := memberTx(t, asks)
	require.Nil(t, tx.Conn())
	_, err := tx.Exec(t.Context(), insertEffect, "asks")
	require.NoError(t, err) // it is undone
	require.ErrorIs(t, asks.Keep(t.Context()), stores.ErrNotShared)
	_, err = memberTx(t, goesOn).Exec(t.Context(), insertEffect, "goes on")
	require.NoError(t, err)
	require.NoError(t, goesOn.Keep(t.Context()))
	require.NoError(t, b.Commit(t.Context()))
	require.Equal(t, []string{"goes on"}, committedKeys(t, s))
}

// Large objects panic then, because they have no connection. That attempt does not count, and the
// message runs alone when it is redelivered.
func TestLargeObjectsWithoutASpareConnection(t *testing.T) {
	t.Parallel()
	s := newSharingOn(t, openStore(t, pgtest.WithParameters(t, testenv.VolatilePostgres(t).NewDatabase(t), "pool_max_conns", "1")),
		func(c *middleware.InboxConfig) {
			c.Retry = middleware.RetryPolicy{Placement: stores.PlacementRedelivered, MaxAttempts: 1}
		})
	wait := batchtest.Crowded(8)
	handle := postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		wait()
		large := tx.LargeObjects()
		if _, err := large.Create(ctx, 0); err != nil {
			return err
		}
		return effect(msg, tx)
	})
	panicked := slices.DeleteFunc(s.Deliver(0, many, handle), func(err error) bool { return err == nil })
	require.NotEmpty(t, panicked, "no message shared a transaction")
	for _, err := range panicked {
		require.ErrorContains(t, err, "panicked")
	}
	for _, err := range s.Deliver(0, many, handle) {
		require.NoError(t, err)
	}
	s.Once(t, many, batchtest.None)
}
