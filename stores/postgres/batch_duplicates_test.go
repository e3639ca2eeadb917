package postgres_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/internal/batchtest"
	"github.com/millpond-go/millpond/internal/pgproxy"
	"github.com/millpond-go/millpond/internal/pgtest"
	"github.com/millpond-go/millpond/internal/testenv"
	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores/postgres"
)

// Half of the messages are duplicates. Each that was to share a transaction takes one trip, and its
// batch no more than without it.
func TestDuplicatesInBatchesTakeOneTrip(t *testing.T) {
	t.Parallel()
	proxy, err := pgproxy.Start(testenv.VolatilePostgres(t).NewDatabase(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	const n, done = 64, 32
	s := newSharingOn(t, openStore(t, pgtest.WithParameters(t, proxy.URL(), "pool_max_conns", "70", "default_query_exec_mode", "exec")), func(c *middleware.InboxConfig) {
		c.CacheSize = -1
	})
	handle := func(wait func()) message.NoPublishHandlerFunc {
		return postgres.Handler(func(_ context.Context, tx pgx.Tx, msg *message.Message) error {
			wait()
			return effect(msg, tx)
		})
	}
	for _, err := range s.Deliver(0, done, handle(func() {})) {
		require.NoError(t, err)
	}
	before, sumBefore := s.Ended()
	trips := proxy.Stats().RoundTrips
	for _, err := range s.Deliver(0, n, handle(batchtest.Crowded(8))) {
		require.NoError(t, err)
	}
	trips = proxy.Stats().RoundTrips - trips
	all, sum := s.Ended()
	batches, kept, unwon := all-before, sum.Kept-sumBefore.Kept, sum.NotWon-sumBefore.NotWon
	require.NoError(t, sum.Lost)
	want := 2*batches + kept + unwon // two of each batch, and one for each handler and duplicate in it
	alone := 3*(n-done-kept) + 2*(done-unwon)
	t.Logf("%d batches with %d members and %d duplicates: %d trips, %d of them alone", batches, kept, unwon, trips, alone)
	require.Greater(t, unwon, 8)
	const slack = 4 // what an inbox asks now and then
	require.LessOrEqual(t, trips, want+alone+slack)
	s.Once(t, n, batchtest.None)
}
