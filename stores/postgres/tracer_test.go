package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/postgres"
)

// traced returns a store whose connections are traced, few enough that each is missed.
func traced(t *testing.T, conns string) (*postgres.Store, *pgtest.BrokenTracer) {
	t.Helper()
	server := testenv.VolatilePostgres(t).NewDatabase(t)
	_ = openStore(t, server).Close()
	config, err := pgxpool.ParseConfig(pgtest.WithParameters(t, server, "pool_max_conns", conns))
	require.NoError(t, err)
	tracer := &pgtest.BrokenTracer{}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s, err := postgres.New(pool, postgres.Config{})
	require.NoError(t, err)
	require.NoError(t, s.Register(t.Context(), stores.Registration{Consumer: pgtest.Stock, Topic: "orders"}))
	return s, tracer
}

func TestATracerThatPanicsKeepsNoConnection(t *testing.T) {
	t.Parallel()
	s, tracer := traced(t, "1")
	for name, end := range map[string]func(a stores.Attempt, tx pgx.Tx){
		"Rollback": func(a stores.Attempt, _ pgx.Tx) { _ = a.Rollback(t.Context()) },
		"Commit of what was aborted": func(a stores.Attempt, tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), "SELECT 1 / $1", 0)
			require.Error(t, err)
			_ = a.Commit(t.Context())
		},
	} {
		a := beginOnceFree(t, s)
		tx, _ := postgres.TxFromContext(a.Context(t.Context()))
		tracer.Armed.Store(true)
		require.Panics(t, func() { end(a, tx) }, name)
		tracer.Armed.Store(false)
		require.Eventually(t, func() bool { return s.Pool().Stat().AcquiredConns() == 0 }, 10*time.Second, 10*time.Millisecond, name)
	}
}

func TestATracerThatPanicsAtTheClaimsOfABatchKeepsNoConnection(t *testing.T) {
	t.Parallel()
	s, tracer := traced(t, "1")
	tracer.Batches.Store(true)
	require.Panics(t, func() { _, _ = s.BeginBatch(t.Context(), []stores.Claim{pgtest.Claim("traced")}) })
	require.Zero(t, s.Pool().Stat().AcquiredConns())
}

func TestATracerThatPanicsAtAClaimKeepsNoConnection(t *testing.T) {
	t.Parallel()
	s, tracer := traced(t, "1")
	tracer.Batches.Store(true)
	require.Panics(t, func() { _, _, _ = s.Begin(t.Context(), pgtest.Claim("traced")) })
	tracer.Batches.Store(false)
	require.Zero(t, s.Pool().Stat().AcquiredConns())
	require.NoError(t, beginOnceFree(t, s).Rollback(t.Context()))
}

// beginOnceFree waits until the server has noticed that a connection was closed, which frees the key.
func beginOnceFree(t *testing.T, s *postgres.Store) (a stores.Attempt) {
	t.Helper()
	testenv.Eventually(t, "the key is free", func() bool {
		begun, v, err := s.Begin(t.Context(), pgtest.Claim("traced"))
		a = begun
		return err != nil || v.Outcome != stores.InFlight
	})
	require.NotNil(t, a, "the claim failed, or is a duplicate")
	return a
}

func TestATracerThatPanicsInABatchKeepsNoConnection(t *testing.T) {
	t.Parallel()
	store, tracer := traced(t, "20")
	s := newSharingOn(t, store, func(c *middleware.InboxConfig) { c.Retry.MaxAttempts = 1 })
	wait := batchtest.Crowded(8)
	tracer.Armed.Store(true)
	s.Deliver(0, 40, postgres.Handler(func(ctx context.Context, tx pgx.Tx, msg *message.Message) error {
		wait()
		if batchtest.Bad(msg.UUID) {
			_, err := tx.Exec(ctx, "SELECT nothing") // cannot be prepared, so that the batch is lost
			return err
		}
		return effect(msg, tx)
	}))
	tracer.Armed.Store(false)
	_, sum := s.Ended()
	require.ErrorIs(t, sum.Lost, stores.ErrBatchLost)
	require.Eventually(t, func() bool { return store.Pool().Stat().AcquiredConns() == 0 }, 10*time.Second, 10*time.Millisecond)
	s.Once(t, 40, func(i int) bool { return batchtest.Bad(batchtest.ID(i)) })
}
